//! What a cluster of replicas promises, shown in virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "the fuzz tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, Ended, open, touch};
use holdfast_core::{EndReason, Event, Outcome, SessionId};
use holdfast_replica::{NodeId, Unavailable};
use protobuf::Message as _;
use raft::eraftpb::Message;

const ALICE: SessionId = SessionId(0xa11ce);
const BOB: SessionId = SessionId(0xb0b);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// When each session ended, on the first node that saw it.
fn ended(cluster: &Cluster, session: SessionId) -> Option<EndReason> {
    cluster.events.iter().find_map(|(_, event)| match event {
        Event::SessionEnded { session: ended, reason, .. } if *ended == session => Some(*reason),
        _ => None,
    })
}

#[test]
fn a_grant_reaches_every_replica_and_they_are_byte_identical() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 30_000));
    cluster.acquire(ALICE, "wallet");
    cluster.run_for(ms(500));
    let digests: Vec<_> = (1..=3).map(|id| cluster.replica(NodeId(id)).table().digest()).collect();
    assert_eq!(cluster.replica(NodeId(3)).table().lock_count(), 1);
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

#[test]
fn tokens_and_time_go_on_rising_over_a_leader_change() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 30_000));
    let (before, first) = cluster.acquire(ALICE, "a");
    let old = cluster.leader().unwrap();
    cluster.kill(old);
    cluster.run_for(ms(3_000));
    let (after, second) = cluster.acquire(ALICE, "b");
    assert_ne!(cluster.leader(), Some(old));
    assert!(second > first);
    assert!(after >= before);
    // No leader, no time: logical time never runs ahead of what a leader has counted.
    assert!(after.since(before).as_ms() < 3_100);
}

#[test]
fn an_isolated_leader_answers_nothing_and_steps_down() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 30_000));
    let old = cluster.leader().unwrap();
    cluster.isolate(old);
    let call = cluster.call(old, touch(ALICE));
    let read = cluster.read(old);
    cluster.run_for(ms(2_500));
    assert!(matches!(cluster.ended[&call], Ended::Failed(Unavailable::LeadershipLost { .. })));
    assert!(matches!(cluster.ended[&read], Ended::Failed(Unavailable::NotLeader { .. })));
    assert_ne!(cluster.leader(), Some(old), "the majority went on without it");
}

#[test]
fn a_follower_refuses_and_names_the_leader() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 30_000));
    cluster.run_for(ms(300));
    let leader = cluster.leader().unwrap();
    let follower = NodeId(if leader.0 == 1 { 2 } else { 1 });
    let call = cluster.call(follower, touch(ALICE));
    let refused = Ended::Failed(Unavailable::NotLeader { leader: Some(leader) });
    assert_eq!(cluster.run_until_ended(call), refused);
}

#[test]
fn a_read_sees_every_grant_that_was_answered_before_it() {
    let mut cluster = Cluster::new(5);
    cluster.commit(open(ALICE, 30_000));
    cluster.acquire(ALICE, "wallet");
    let leader = cluster.leader().unwrap();
    let read = cluster.read(leader);
    assert_eq!(cluster.run_until_ended(read), Ended::Read);
    assert_eq!(cluster.replica(leader).table().status("wallet", 10).holders.len(), 1);
}

#[test]
fn a_silent_session_ends_after_its_ttl_and_within_the_bound() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 5_000));
    let from = cluster.now;
    cluster.run_for(ms(4_900));
    assert_eq!(ended(&cluster, ALICE), None);
    cluster.run_for(ms(400));
    assert_eq!(ended(&cluster, ALICE), Some(EndReason::Ttl), "at {:?}", cluster.now - from);
}

#[test]
fn three_leader_changes_give_one_grace_and_no_new_ttl() {
    let mut cluster = Cluster::new(5);
    cluster.commit(open(ALICE, 5_000));
    let touched_at = cluster.replica(cluster.leader().unwrap()).table().now();
    // Bob, who is heard of all the time, lives on.
    cluster.commit(open(BOB, 5_000));
    for _ in 0..3 {
        cluster.run_for(ms(800));
        let leader = cluster.run_until_leader();
        cluster.isolate(leader);
        cluster.run_for(ms(2_000));
        cluster.heal();
        cluster.commit(touch(BOB));
    }
    cluster.run_until_leader();
    while ended(&cluster, ALICE).is_none() {
        assert!(cluster.now < ms(60_000), "the TTL was reset by every election");
        cluster.run_for(ms(500));
        cluster.commit(touch(BOB));
    }
    let leader = cluster.leader().unwrap();
    let lived = cluster.replica(leader).table().now().since(touched_at).as_ms();
    assert!((5_000..=5_000 + 1_000 + 700).contains(&lived), "lived for {lived} ms of logical time");
    assert_eq!(ended(&cluster, BOB), None);
}

#[test]
fn a_stalled_leader_expires_no_session_when_it_wakes() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.run_until_leader();
    cluster.commit(open(ALICE, 2_000));
    cluster.pause(leader);
    for _ in 0..5 {
        cluster.run_for(ms(1_000));
        cluster.commit_elsewhere(leader, touch(ALICE));
    }
    cluster.resume(leader);
    cluster.run_for(ms(1_000));
    assert_eq!(ended(&cluster, ALICE), None);
    assert_ne!(cluster.leader(), Some(leader));
}

#[test]
fn a_cluster_that_stalled_as_a_whole_expires_no_session_when_it_wakes() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 2_000));
    for id in 1..=3 {
        cluster.pause(NodeId(id));
    }
    cluster.run_for(ms(60_000));
    for id in 1..=3 {
        cluster.resume(NodeId(id));
    }
    cluster.run_for(ms(300));
    // Her heartbeat was waiting in the socket all the time.
    assert!(matches!(cluster.commit(touch(ALICE)).1, Outcome::Touched { .. }));
    assert_eq!(ended(&cluster, ALICE), None);
}

#[test]
fn a_leader_whose_turns_are_slow_still_expires_silent_sessions() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 2_000));
    // Every turn takes longer than what counts as a stall.
    for _ in 0..60 {
        for id in 1..=3 {
            cluster.pause(NodeId(id));
        }
        cluster.run_for(ms(290));
        for id in 1..=3 {
            cluster.resume(NodeId(id));
        }
        cluster.step();
    }
    assert_eq!(ended(&cluster, ALICE), Some(EndReason::Ttl));
}

/// The node's loop turns once and then stands still, for less than it takes to be deposed.
fn stall(cluster: &mut Cluster, node: NodeId) {
    cluster.pause(node);
    cluster.run_for(ms(440));
    cluster.resume(node);
    cluster.step();
}

#[test]
fn a_leader_that_keeps_stalling_hands_over_and_time_goes_on() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 5_000));
    let (leader, from) = (cluster.leader().unwrap(), cluster.now);
    while ended(&cluster, ALICE).is_none() {
        assert!(cluster.now - from < ms(5_000 + 1_000 + 100 + 1_000), "time runs late");
        stall(&mut cluster, leader);
    }
    assert_ne!(cluster.leader(), Some(leader));
}

#[test]
fn a_leader_that_stalled_once_stays() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.run_until_leader();
    cluster.run_for(ms(500));
    let term = cluster.replica(leader).leadership().term;
    stall(&mut cluster, leader);
    cluster.run_for(ms(5_000));
    assert_eq!((cluster.leader(), cluster.replica(leader).leadership().term), (Some(leader), term));
}

#[test]
fn leadership_does_not_rotate_where_all_nodes_stall() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 60_000));
    let first = cluster.leader().map(|leader| cluster.replica(leader).leadership().term);
    let nodes = [1, 2, 3].map(NodeId);
    for _ in 0..60 {
        nodes.iter().for_each(|node| cluster.pause(*node));
        cluster.run_for(ms(440));
        nodes.iter().for_each(|node| cluster.resume(*node));
        for _ in 0..6 {
            cluster.step();
        }
    }
    let last = cluster.leader().map(|leader| cluster.replica(leader).leadership().term);
    let changes = last.zip(first).map(|(last, first)| last - first);
    assert!(changes.is_some_and(|changes| (1..=6).contains(&changes)), "{changes:?}");
    cluster.commit(touch(ALICE));
}

#[test]
fn a_leader_that_keeps_stalling_stays_if_no_other_voter_can_lead() {
    let mut cluster = Cluster::new(1);
    cluster.commit(open(ALICE, 60_000));
    for _ in 0..20 {
        stall(&mut cluster, NodeId(1));
        let ticket = cluster.call(NodeId(1), touch(ALICE));
        assert!(matches!(cluster.run_until_ended(ticket), Ended::Answer(..)));
    }
}

#[test]
fn a_call_to_a_leader_that_was_cut_off_and_frozen_ends_when_it_wakes() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.run_until_leader();
    cluster.commit(open(ALICE, 60_000));
    cluster.isolate(leader);
    cluster.run_for(ms(200));
    let call = cluster.call(leader, touch(ALICE));
    cluster.pause(leader);
    cluster.run_for(ms(3_000));
    cluster.heal();
    cluster.resume(leader);
    cluster.run_for(ms(1_000));
    assert!(cluster.ended.contains_key(&call), "it hangs for ever");
    assert_ne!(cluster.leader(), Some(leader));
}

#[test]
fn leadership_is_not_handed_to_a_dead_member() {
    let mut cluster = Cluster::new(3);
    let old = cluster.run_until_leader();
    cluster.commit(open(ALICE, 30_000));
    cluster.run_for(ms(300));
    // The highest id would be chosen among equals.
    let dead = NodeId(if old.0 == 3 { 2 } else { 3 });
    cluster.kill(dead);
    cluster.run_for(ms(2_000));
    cluster.replica_mut(old).transfer_leadership();
    cluster.run_for(ms(200));
    let new = cluster.leader().unwrap();
    assert!(new != old && new != dead, "{old} handed over to {new}");
}

#[test]
fn a_node_that_was_away_past_compaction_comes_back_by_snapshot() {
    let mut cluster = Cluster::with_snapshots_every(3, 20);
    cluster.commit(open(ALICE, 60_000));
    let away = NodeId(3);
    cluster.kill(away);
    for n in 0..100 {
        cluster.acquire(ALICE, &format!("lock-{n}"));
    }
    cluster.start(away);
    cluster.run_for(ms(3_000));
    let leader = cluster.leader().unwrap();
    assert!(cluster.has_snapshot_on_disk(away));
    assert_eq!(cluster.replica(away).table().digest(), cluster.replica(leader).table().digest());
    assert!(cluster.first_log_index_on_disk(leader).is_some_and(|first| first > 20));
}

#[test]
fn a_follower_that_lags_gets_many_entries_in_one_message() {
    const ENTRIES: usize = 200;
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 60_000));
    let lagging = NodeId(3);
    cluster.isolate(lagging);
    for n in 0..ENTRIES {
        cluster.acquire(ALICE, &format!("lock-{n}"));
    }
    cluster.run_for(ms(200));
    let before = cluster.sent().len();
    cluster.heal();
    cluster.run_for(ms(1_000));
    assert_eq!(cluster.replica(lagging).table().lock_count(), ENTRIES);
    let messages = cluster.sent().len() - before;
    assert!(messages < ENTRIES / 2, "{messages} messages");
}

#[test]
fn a_peer_that_is_unreachable_is_not_sent_everything_in_vain() {
    const ENTRIES: usize = 50;
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 60_000));
    cluster.run_for(ms(300));
    let unreachable = NodeId(3);
    cluster.isolate(unreachable);
    let leader = cluster.leader().unwrap();
    cluster.replica_mut(leader).handle_peer_unreachable(unreachable);
    let before = cluster.sent().len();
    for n in 0..ENTRIES {
        cluster.acquire(ALICE, &format!("lock-{n}"));
    }
    let sent =
        cluster.sent()[before..].iter().map(|bytes| Message::parse_from_bytes(bytes).unwrap());
    let in_vain = sent.filter(|message| message.to == unreachable.0 && !message.entries.is_empty());
    assert!(in_vain.count() < ENTRIES / 2);
}

#[test]
fn a_snapshot_that_is_lost_on_its_way_is_sent_again() {
    let mut cluster = Cluster::with_snapshots_every(3, 20);
    cluster.commit(open(ALICE, 60_000));
    let away = NodeId(3);
    cluster.kill(away);
    for n in 0..100 {
        cluster.acquire(ALICE, &format!("lock-{n}"));
    }
    cluster.start(away);
    cluster.run_until_snapshot_is_sent();
    cluster.isolate(away);
    cluster.step();
    cluster.heal();
    assert!(!cluster.has_snapshot_on_disk(away));
    cluster.run_for(ms(3_000));
    assert_eq!(cluster.snapshots_sent(), 2);
    assert_eq!(cluster.replica(away).table().lock_count(), 100);
}

#[test]
fn a_snapshot_for_a_follower_that_went_away_does_not_stay_in_memory() {
    let mut cluster = Cluster::with_snapshots_every(3, 20);
    cluster.commit(open(ALICE, 60_000));
    let away = NodeId(if cluster.leader() == Some(NodeId(3)) { 2 } else { 3 });
    cluster.kill(away);
    for n in 0..100 {
        cluster.acquire(ALICE, &format!("lock-{n}"));
    }
    let leader = cluster.leader().unwrap();
    cluster.run_until("the leader's own are saved", |cluster| {
        !cluster.replica(leader).is_writing_snapshot()
    });
    cluster.start(away);
    // It is written a few entries a turn; the follower is gone before it is done.
    cluster.run_until("a snapshot is written", |cluster| {
        cluster.replica(leader).is_writing_snapshot()
    });
    cluster.kill(away);
    cluster.run_until("it is written", |cluster| !cluster.replica(leader).is_writing_snapshot());
    assert!(cluster.replica(leader).has_unsent_snapshot());
    cluster.run_for(ms(10_000));
    assert!(!cluster.replica(leader).has_unsent_snapshot());
    cluster.start(away);
    cluster.run_for(ms(3_000));
    assert_eq!(cluster.replica(away).table().lock_count(), 100);
}

#[test]
fn a_replica_that_pins_the_log_takes_a_snapshot_when_asked() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 60_000));
    let node = NodeId(2);
    cluster.run_for(ms(300));
    assert!(!cluster.has_snapshot_on_disk(node));
    cluster.replica_mut(node).request_snapshot();
    cluster.run_for(ms(20));
    assert!(cluster.has_snapshot_on_disk(node));
}

#[test]
fn all_nodes_killed_at_once_come_back_with_everything_that_was_answered() {
    let mut cluster = Cluster::with_snapshots_every(3, 7);
    cluster.commit(open(ALICE, 60_000));
    let mut last = None;
    for n in 0..30 {
        last = Some(cluster.acquire(ALICE, &format!("lock-{n}")).1);
    }
    for id in 1..=3 {
        cluster.kill(NodeId(id));
    }
    for id in 1..=3 {
        cluster.start(NodeId(id));
    }
    let (_, next) = cluster.acquire(ALICE, "one more");
    assert!(Some(next) > last);
    let leader = cluster.leader().unwrap();
    assert_eq!(cluster.replica(leader).table().lock_count(), 31);
}

#[test]
fn leadership_can_be_handed_over() {
    let mut cluster = Cluster::new(3);
    let old = cluster.run_until_leader();
    cluster.commit(open(ALICE, 30_000));
    cluster.run_for(ms(300));
    cluster.replica_mut(old).transfer_leadership();
    cluster.run_for(ms(200));
    let new = cluster.leader().unwrap();
    assert_ne!(new, old, "without waiting for an election timeout");
}

#[test]
fn an_idle_cluster_writes_nothing() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 60_000));
    cluster.run_for(ms(1_000));
    let leader = cluster.leader().unwrap();
    let before = cluster.replica(leader).progress().last_index;
    cluster.run_for(ms(20_000));
    assert_eq!(cluster.replica(leader).progress().last_index, before);
}

#[test]
fn bytes_that_are_no_message_are_refused_with_an_error() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.run_until_leader();
    for bytes in [&b""[..], &[0xff; 40], &[8, 1, 16, 1, 24, 99]] {
        let error = cluster.replica_mut(leader).handle_message(bytes).unwrap_err();
        assert!(error.to_string().starts_with("a consensus message"), "{error}");
    }
}
