//! A turn takes commands up to a cost, not only up to a number: the rest waits for the next turn.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, Ended};
use holdfast_core::command::{AcquireAll, Call, Member, Mode, Terms};
use holdfast_core::{ActorId, Batch, Command, LockName, RequestId, RulesVersion, SessionId, Span};
use holdfast_replica::{NodeId, Replica, Ticket, Unavailable};

const NODE: NodeId = NodeId(1);
const NAMES: u64 = 256;
/// What one turn takes, rounded up to a whole command.
const TURN_COST: u64 = 8_192;

fn leader() -> (Cluster, SessionId) {
    let mut cluster = Cluster::new(1);
    cluster.replica_mut(NODE).handle_log_version(NODE, u32::MAX);
    cluster.run_until_leader();
    cluster.run_for(Duration::from_millis(100));
    assert_eq!(cluster.replica(NODE).table().rules(), RulesVersion::ADOPTED);
    let session = SessionId(1);
    let ticket = cluster.call(NODE, cluster::open(session, 60_000));
    cluster.run_until_ended(ticket);
    (cluster, session)
}

fn acquire_all(session: SessionId, request: u64) -> Command {
    let member = |number| Member {
        name: LockName::new(&format!("lock/{number}")).unwrap(),
        mode: Mode::Exclusive,
    };
    Command::AcquireAll(AcquireAll {
        call: Call { session, request: RequestId(request), acked_through: RequestId(0) },
        actor: ActorId(request),
        members: (0..NAMES).map(member).collect(),
        terms: Terms { wait: Span::from_secs(60), ..Terms::default() },
    })
}

/// One turn of the loop: what it proposed, as the number of names.
fn turn(replica: &mut Replica, now: Duration) -> u64 {
    replica.handle_time(now);
    let mut names = 0;
    while let Some(turn) = replica.begin_turn() {
        for entry in turn.entries.iter().filter(|entry| !entry.data.is_empty()) {
            let commands = Batch::decode(&entry.data).unwrap().commands;
            names += commands.iter().map(|command| command.cost() as u64).sum::<u64>();
        }
        replica.finish_turn(&mut Vec::new()).unwrap();
    }
    names
}

#[test]
fn a_turn_takes_commands_up_to_a_cost_and_the_next_turn_comes_at_once() {
    let (mut cluster, session) = leader();
    let commands = 100;
    let now = cluster.now;
    let replica = cluster.replica_mut(NODE);
    for request in 1..=commands {
        replica.handle_call(Some(Ticket(1_000 + request)), acquire_all(session, request));
    }
    let mut taken = 0;
    let mut turns = 0;
    while taken < commands * NAMES {
        let names = turn(replica, now);
        assert!((1..TURN_COST + NAMES).contains(&names), "{names} names in one turn");
        taken += names;
        turns += 1;
        let has_more = taken < commands * NAMES;
        assert_eq!(replica.next_turn_within() == Some(Duration::ZERO), has_more);
    }
    assert_eq!((taken, turns), (commands * NAMES, (commands * NAMES).div_ceil(TURN_COST)));
}

#[test]
fn calls_beyond_the_queue_limit_are_refused_as_an_overload_and_the_rest_is_answered() {
    let (mut cluster, session) = leader();
    let tickets: Vec<Ticket> =
        (1..=1_200).map(|request| cluster.call(NODE, acquire_all(session, request))).collect();
    let ended: Vec<Ended> = tickets.iter().map(|ticket| cluster.run_until_ended(*ticket)).collect();
    let is_refused = |ended: &&Ended| **ended == Ended::Failed(Unavailable::Overloaded);
    let refused = ended.iter().filter(is_refused).count();
    assert_eq!(refused as u64, 1_200 - 32 * TURN_COST / NAMES);
    let is_answered = |ended: &&Ended| matches!(ended, Ended::Answer(..));
    assert_eq!(ended.iter().filter(is_answered).count() + refused, 1_200);
}
