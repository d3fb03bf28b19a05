//! How long a replica to which nothing happens may be left alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::Cluster;
use holdfast_replica::{Durable, Effect, NodeId, Replica, ReplicaConfig};

const TICK: Duration = Duration::from_millis(50);

/// Looks at it after each of the times that it gives, from one that need not be that of a tick, until it wants to lead.
/// Says when that is, and how often it was looked at.
fn election(config: ReplicaConfig, begun: u64, rest: fn(&Replica) -> Duration) -> (Duration, u32) {
    let mut replica = Replica::new(config, Durable::default()).unwrap();
    let begun = Duration::from_millis(begun);
    replica.handle_time(Duration::ZERO);
    replica.handle_time(begun);
    let (mut now, mut looks) = (begun, 0);
    loop {
        let mut effects = Vec::new();
        let sent = replica.begin_turn().map_or(Vec::new(), |turn| turn.messages);
        replica.finish_turn(&mut effects).unwrap();
        let asks = effects.iter().any(|effect| matches!(effect, Effect::Send(_)));
        if asks || !sent.is_empty() {
            return (now, looks);
        }
        assert!(looks < 100, "it is content without a leader");
        now += rest(&replica);
        looks += 1;
        replica.handle_time(now);
    }
}

#[test]
fn a_follower_that_rests_wants_to_lead_as_soon_as_one_that_looks_at_every_tick() {
    let cluster = Cluster::new(5);
    for node in 1..=5 {
        for begun in [0, 1, 20, 49] {
            let config = || cluster.config(NodeId(node));
            let (restless, often) = election(config(), begun, |_| TICK);
            let (rested, seldom) = election(config(), begun, Replica::rests_for);
            assert!(rested < restless + TICK, "{rested:?} and {restless:?}");
            assert!(seldom * 3 < often * 2, "{seldom} of {often} looks");
        }
    }
}

#[test]
fn a_leader_rests_for_a_tick_and_nobody_until_it_would_be_a_stall() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.run_until_leader();
    cluster.run_for(Duration::from_secs(1));
    for node in (1..=3).map(NodeId) {
        let rest = cluster.replica(node).rests_for();
        if node == leader {
            assert_eq!(rest, TICK);
        } else {
            assert!(TICK < rest && rest < cluster.config(node).stall_max(), "{rest:?}");
        }
    }
    let nervous = ReplicaConfig { election_ticks: (5, 6), ..cluster.config(NodeId(1)) };
    let replica = Replica::new(nervous, Durable::default()).unwrap();
    assert_eq!(replica.rests_for(), TICK);
}
