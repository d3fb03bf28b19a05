//! What a leader of the build before said on its wires: this build follows it.
//!
//! Recorded from three nodes of build c567b4a on loopback. Node 1 was elected by node 2, sessions took `lock-2` to
//! `lock-5` for a day, and `churn` was taken and released forty times. Node 3 came later and was sent the log.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use std::time::Duration;

use holdfast_core::{Limits, Span};
use holdfast_replica::{Durable, Effect, GroupId, NodeId, Replica, ReplicaConfig};

const TO_NODE_2: &[u8] = include_bytes!("fixtures/build-c567b4a/wire-to-node-2");
const TO_NODE_3: &[u8] = include_bytes!("fixtures/build-c567b4a/wire-to-node-3");
const GREETING: [u8; 4] = [0xf5, b'h', b'f', b'1'];
const PASS_BYTES: usize = 16;

/// The messages of a wire: after greeting and pass, each has its length and its group before it, four bytes each.
fn messages(wire: &'static [u8]) -> Vec<&'static [u8]> {
    let (greeting, rest) = wire.split_at(GREETING.len());
    assert_eq!(greeting, GREETING);
    let mut rest = &rest[PASS_BYTES..];
    let mut messages = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (group, after) = after.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_le_bytes(*group), 1);
        let length = u32::from_le_bytes(*length) as usize;
        if after.len() < length {
            // The recording ends in the middle of a message.
            break;
        }
        let (message, after) = after.split_at(length);
        messages.push(message);
        rest = after;
    }
    messages
}

fn fresh(node: u64) -> Replica {
    let config = ReplicaConfig {
        group: GroupId(1),
        node: NodeId(node),
        voters: [1, 2, 3].map(NodeId).into(),
        tick: Duration::from_millis(50),
        heartbeat_ticks: 2,
        election_ticks: (10, 11),
        grace: Span::from_ms(1_000),
        snapshot_every_entries: u64::MAX,
        snapshot_every_bytes: u64::MAX,
        snapshot_slice_entries: 1_000,
        snapshot_slice_pause: Duration::ZERO,
        keep_entries: 0,
        keep_bytes: u64::MAX,
        limits: Limits::default(),
    };
    Replica::new(config, Durable::default()).unwrap()
}

/// Takes everything in, one message a turn. Gives how many messages it answers with.
fn follow(replica: &mut Replica, messages: &[&[u8]]) -> usize {
    let mut answers = 0;
    for message in messages {
        replica.handle_message(message).unwrap();
        while let Some(turn) = replica.begin_turn() {
            let mut effects = Vec::new();
            replica.finish_turn(&mut effects).unwrap();
            let sent = effects.iter().filter(|effect| matches!(effect, Effect::Send(_))).count();
            answers += turn.messages.len() + sent;
        }
    }
    answers
}

#[test]
fn a_follower_takes_in_all_that_a_leader_of_the_build_before_sends() {
    for (node, wire) in [(2, TO_NODE_2), (3, TO_NODE_3)] {
        let messages = messages(wire);
        assert!(messages.len() > 20, "{}", messages.len());
        let mut replica = fresh(node);
        let answers = follow(&mut replica, &messages);
        assert!(answers > 20, "{answers}");
        assert_eq!(replica.leadership().leader, Some(NodeId(1)), "node {node}");
        assert!(replica.applied_index() >= 175, "{}", replica.applied_index());
        let table = replica.table();
        assert_eq!((table.lock_count(), table.session_count()), (4, 4), "node {node}");
        let tokens = (2..=5).map(|lock| table.status(&format!("lock-{lock}"), 1).holders[0].token);
        assert!(tokens.clone().is_sorted_by(|a, b| a < b), "{:?}", tokens.collect::<Vec<_>>());
    }
}

#[test]
fn two_followers_of_the_build_before_end_up_with_the_same_bytes() {
    let tables = [(2, TO_NODE_2), (3, TO_NODE_3)].map(|(node, wire)| {
        let mut replica = fresh(node);
        follow(&mut replica, &messages(wire));
        (replica.applied_index(), replica.table().encode())
    });
    let [first, second] = tables;
    assert_eq!(first.0, second.0, "both have applied the same entries");
    assert!(first.1 == second.1, "the tables differ");
}
