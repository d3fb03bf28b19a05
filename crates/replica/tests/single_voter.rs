//! A single voter elects itself and leads within one turn.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, member};
use holdfast_replica::{Effect, Member, MembershipChange, NodeId, Outgoing};

const VOTER: NodeId = NodeId(1);
const LEARNER: NodeId = NodeId(2);

/// If they left earlier and the voter crashed, it would use the same term again, for other entries at the same indexes.
#[test]
fn a_single_voter_sends_nothing_to_its_learner_before_its_new_term_is_durable() {
    let mut cluster = Cluster::new(1);
    cluster.start_new(LEARNER);
    let learner = Member { stays_learner: true, ..member(LEARNER.0) };
    cluster.changed(MembershipChange::Add { node: LEARNER, member: learner }).unwrap();
    cluster.start(VOTER);
    let replica = cluster.replica_mut(VOTER);
    let old_term = replica.leadership().term;

    let mut now = Duration::ZERO;
    let (turn, sent_late) = loop {
        now += Duration::from_millis(50);
        assert!(now < Duration::from_secs(60), "it elects itself");
        replica.handle_time(now);
        let Some(turn) = replica.begin_turn() else { continue };
        let mut effects = Vec::new();
        replica.finish_turn(&mut effects).unwrap();
        if turn.hard_state.is_some_and(|state| state.term > old_term) {
            let to_learner = |effect: &Effect| matches!(effect, Effect::Send(Outgoing { to, .. }) if *to == LEARNER);
            break (turn, effects.iter().any(to_learner));
        }
    };
    assert!(turn.messages.is_empty(), "before the disk has worked: {:?}", turn.messages);
    assert!(sent_late, "once it has worked the learner hears of the new leader");
    assert!(replica.leadership().is_here);
}
