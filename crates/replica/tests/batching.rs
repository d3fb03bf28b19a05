//! Acquires that would only join a queue are delayed for a moment, so that they share an entry with a release.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "other tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, Ended, acquire, open};
use holdfast_core::command::{Call, HoldRef};
use holdfast_core::{
    Command, FenceToken, LockName, Outcome, ReleaseAnswer, RequestId, SessionId, Span,
};
use holdfast_replica::NodeId;

const ALICE: SessionId = SessionId(0xa11ce);
const BOB: SessionId = SessionId(0xb0b);
const CAROL: SessionId = SessionId(0xca401);

/// A cluster in which alice holds `wallet` and carol waits for it, its leader, and alice's token.
fn held() -> (Cluster, NodeId, FenceToken) {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 30_000));
    cluster.commit(open(BOB, 30_000));
    let (_, token) = cluster.acquire(ALICE, "wallet");
    cluster.commit(open(CAROL, 30_000));
    let command = waiting(&mut cluster, CAROL, 20_000);
    cluster.commit(command);
    cluster.run_for(Duration::from_millis(100));
    let leader = cluster.leader().unwrap();
    (cluster, leader, token)
}

fn waiting(cluster: &mut Cluster, session: SessionId, wait_ms: u64) -> Command {
    let mut command = acquire(session, cluster.request(), "wallet");
    if let Command::Acquire(acquire) = &mut command {
        acquire.terms.wait = Span::from_ms(wait_ms);
    }
    command
}

fn last_index(cluster: &Cluster, node: NodeId) -> u64 {
    cluster.replica(node).progress().last_index
}

#[test]
fn a_queueing_acquire_and_the_release_before_it_share_one_log_entry() {
    let (mut cluster, leader, token) = held();
    let before = last_index(&cluster, leader);
    let acquire = waiting(&mut cluster, BOB, 10_000);
    let acquire = cluster.call(leader, acquire);
    cluster.step();
    assert_eq!(last_index(&cluster, leader), before, "it is alone");
    let call = Call { session: ALICE, request: cluster.request(), acked_through: RequestId(0) };
    let name = LockName::new("wallet").unwrap();
    let hold = HoldRef { name, token, acquire: RequestId(0) };
    let release = cluster.call(leader, Command::Release { call, hold });
    let released = Outcome::Release(ReleaseAnswer::Released);
    assert!(matches!(cluster.run_until_ended(release), Ended::Answer(_, end) if end == released));
    assert!(matches!(cluster.run_until_ended(acquire), Ended::Answer(_, Outcome::Queued { .. })));
    assert_eq!(last_index(&cluster, leader), before + 1);
    let holders = cluster.replica(leader).table().status("wallet", 10).holders;
    assert_eq!(holders.iter().map(|holder| holder.session.0).collect::<Vec<_>>(), [CAROL.0 as u64]);
}

#[test]
fn a_delayed_acquire_is_proposed_after_the_delay() {
    let (mut cluster, leader, _) = held();
    let before = last_index(&cluster, leader);
    let acquire = waiting(&mut cluster, BOB, 10_000);
    let acquire = cluster.call(leader, acquire);
    cluster.step();
    let within = cluster.replica(leader).next_turn_within().unwrap();
    assert!(within <= Duration::from_millis(1), "the shard knows: {within:?}");
    cluster.step();
    assert_eq!(last_index(&cluster, leader), before + 1);
    assert!(matches!(cluster.run_until_ended(acquire), Ended::Answer(_, Outcome::Queued { .. })));
    cluster.run_for(Duration::from_millis(100));
    assert_eq!(cluster.replica(leader).next_turn_within(), None, "and rests again");
}

#[test]
fn a_try_acquire_is_not_delayed() {
    let (mut cluster, leader, _) = held();
    let before = last_index(&cluster, leader);
    let attempt = waiting(&mut cluster, BOB, 0);
    cluster.call(leader, attempt);
    cluster.step();
    assert_eq!(last_index(&cluster, leader), before + 1);
}

/// The holder's release may be under way: then the acquire is behind no waiter, and is granted right after it.
#[test]
fn an_acquire_that_would_be_first_in_the_queue_is_not_delayed() {
    let (mut cluster, leader, _) = held();
    cluster.acquire(ALICE, "another");
    let before = last_index(&cluster, leader);
    let mut command = acquire(BOB, cluster.request(), "another");
    if let Command::Acquire(acquire) = &mut command {
        acquire.terms.wait = Span::from_ms(10_000);
    }
    cluster.call(leader, command);
    cluster.step();
    assert_eq!(last_index(&cluster, leader), before + 1);
}

#[test]
fn an_acquire_of_a_free_lock_is_not_delayed() {
    let (mut cluster, leader, _) = held();
    let before = last_index(&cluster, leader);
    cluster.acquire_soon(leader, BOB, "another");
    cluster.step();
    assert_eq!(last_index(&cluster, leader), before + 1);
}

#[test]
fn a_delayed_acquire_fails_when_leadership_is_lost() {
    let (mut cluster, leader, _) = held();
    cluster.isolate(leader);
    cluster.run_for(Duration::from_millis(400));
    let acquire = waiting(&mut cluster, BOB, 10_000);
    let acquire = cluster.call(leader, acquire);
    cluster.run_until("it leads no more", |cluster| !cluster.replica(leader).leadership().is_here);
    assert!(matches!(cluster.run_until_ended(acquire), Ended::Failed(_)));
    cluster.run_for(Duration::from_millis(100));
    assert_eq!(cluster.replica(leader).next_turn_within(), None);
}
