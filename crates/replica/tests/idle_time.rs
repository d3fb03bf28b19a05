//! How long a replica to which nothing happens may be left alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::Cluster;
use holdfast_replica::{Durable, Effect, NodeId, Replica, ReplicaConfig};
use protobuf::Message as _;
use raft::eraftpb::{Message, MessageType};

const TICK: Duration = Duration::from_millis(50);

/// A follower that is looked at after each of the times that it gives, and when it hears of its leader.
struct Follower {
    replica: Replica,
    rest: fn(&Replica) -> Duration,
    now: Duration,
    wake_ups: u32,
}

impl Follower {
    /// Looked at first at a time that need not be that of a tick.
    fn new(config: ReplicaConfig, begun: Duration, rest: fn(&Replica) -> Duration) -> Follower {
        let mut replica = Replica::new(config, Durable::default()).unwrap();
        replica.handle_time(Duration::ZERO);
        replica.handle_time(begun);
        Follower { replica, rest, now: begun, wake_ups: 0 }
    }

    /// Says whether it wants to lead.
    fn wake(&mut self, now: Duration) -> bool {
        self.now = now;
        self.wake_ups += 1;
        self.replica.handle_time(now);
        let mut effects = Vec::new();
        let sent = self.replica.begin_turn().map_or(Vec::new(), |turn| turn.messages);
        self.replica.finish_turn(&mut effects).unwrap();
        let sent = sent.into_iter().map(|sent| sent.message);
        let sent = sent.chain(effects.into_iter().filter_map(|effect| match effect {
            Effect::Send(sent) => Some(sent.message),
            _ => None,
        }));
        let mut kinds = sent.map(|sent| Message::parse_from_bytes(&sent).unwrap().get_msg_type());
        kinds.any(|kind| kind == MessageType::MsgRequestPreVote)
    }

    fn hear_of_leader(&mut self, at: Duration) {
        while self.now + (self.rest)(&self.replica) < at {
            let next = self.now + (self.rest)(&self.replica);
            assert!(!self.wake(next), "it has a leader");
        }
        let mut heartbeat = Message { from: 7, to: 1, term: 1, ..Message::default() };
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        self.replica.handle_message(&heartbeat.write_to_bytes().unwrap()).unwrap();
        assert!(!self.wake(at), "it has a leader");
    }

    /// When it does if it hears nothing, and how often it has been looked at by then.
    fn wants_to_lead(mut self) -> (Duration, u32) {
        loop {
            assert!(self.wake_ups < 200, "it is content without a leader");
            let next = self.now + (self.rest)(&self.replica);
            if self.wake(next) {
                return (self.now, self.wake_ups);
            }
        }
    }
}

#[test]
fn an_idle_follower_campaigns_when_one_that_wakes_at_every_tick_does() {
    let cluster = Cluster::new(7);
    for (election, begun) in (8..20).flat_map(|election| [0, 1, 20, 49].map(|ms| (election, ms))) {
        for heartbeats in [0, 1, 2, 7] {
            let wants_to_lead = |rest| {
                let ticks = (election, election + 1);
                let config = ReplicaConfig { election_ticks: ticks, ..cluster.config(NodeId(1)) };
                let begun = Duration::from_millis(begun);
                let mut follower = Follower::new(config, begun, rest);
                for number in 1..=heartbeats {
                    follower.hear_of_leader(begun + TICK * 2 * number);
                }
                follower.wants_to_lead()
            };
            let (restless, often) = wants_to_lead(|_| TICK);
            let (rested, seldom) = wants_to_lead(Replica::idle_for_at_most);
            assert!(rested.abs_diff(restless) <= TICK, "{rested:?} and {restless:?}");
            assert!(seldom * 4 < often * 3, "{seldom} of {often} wake_ups");
        }
    }
}

#[test]
fn a_leader_idles_for_one_tick_and_no_replica_idles_into_a_stall() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.run_until_leader();
    cluster.run_for(Duration::from_secs(1));
    for node in (1..=3).map(NodeId) {
        let rest = cluster.replica(node).idle_for_at_most();
        if node == leader {
            assert_eq!(rest, TICK);
        } else {
            assert!(TICK < rest && rest < cluster.config(node).stall_max(), "{rest:?}");
        }
    }
    let nervous = ReplicaConfig { election_ticks: (5, 6), ..cluster.config(NodeId(1)) };
    let slow = ReplicaConfig {
        tick: Duration::from_millis(250),
        heartbeat_ticks: 10,
        election_ticks: (40, 41),
        ..cluster.config(NodeId(1))
    };
    for (config, rest) in [(nervous, TICK), (slow, TICK * 10)] {
        assert_eq!(Replica::new(config, Durable::default()).unwrap().idle_for_at_most(), rest);
    }
}
