//! A leader's snapshot that was decoded on another thread is taken like one that comes as bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use std::time::Duration;

use holdfast_core::{Limits, Span};
use holdfast_replica::{
    Durable, Effect, GroupId, MessageError, NodeId, Replica, ReplicaConfig, SnapshotMessage,
};

/// The first message carries a snapshot; each has its length before it, as four bytes, little endian.
const TO_NODE_3: &[u8] = include_bytes!("fixtures/version-1/messages-to-node-3");

const SENDER: NodeId = NodeId(1);

fn first_message() -> &'static [u8] {
    let (length, rest) = TO_NODE_3.split_first_chunk::<4>().unwrap();
    &rest[..u32::from_le_bytes(*length) as usize]
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

fn turn(replica: &mut Replica) -> Vec<Effect> {
    let mut effects = Vec::new();
    while replica.begin_turn().is_some() {
        replica.finish_turn(&mut effects).unwrap();
    }
    effects
}

#[test]
fn a_snapshot_that_was_decoded_elsewhere_is_installed_like_its_bytes() {
    let decoding =
        std::thread::spawn(|| SnapshotMessage::decode(first_message(), Limits::default()));
    let mut by_message = fresh(3);
    by_message.handle_snapshot_message(SENDER, decoding.join().unwrap().unwrap()).unwrap();
    let mut by_bytes = fresh(3);
    by_bytes.handle_message(first_message()).unwrap();
    let answers = [turn(&mut by_message).len(), turn(&mut by_bytes).len()];
    assert_eq!(answers[0], answers[1]);
    assert!(by_message.table().lock_count() > 0);
    assert_eq!(by_message.applied_index(), by_bytes.applied_index());
    assert_eq!(by_message.table().encode(), by_bytes.table().encode());
}

#[test]
fn a_snapshot_for_another_node_is_refused_though_it_can_be_decoded() {
    let message = SnapshotMessage::decode(first_message(), Limits::default()).unwrap();
    let refused = fresh(2).handle_snapshot_message(SENDER, message);
    assert!(matches!(refused, Err(MessageError::Misdirected { .. })), "{refused:?}");
}

#[test]
fn a_snapshot_in_the_name_of_another_node_is_refused() {
    let message = SnapshotMessage::decode(first_message(), Limits::default()).unwrap();
    let refused = fresh(3).handle_snapshot_message(NodeId(2), message);
    assert!(matches!(refused, Err(MessageError::WrongSender { .. })), "{refused:?}");
}

#[test]
fn a_message_without_a_snapshot_is_not_decoded_as_one() {
    // A heartbeat to node 1, from node 2, in term 1.
    const HEARTBEAT: [u8; 8] = [0x08, 8, 0x10, 1, 0x18, 2, 0x20, 1];
    for bytes in [&HEARTBEAT[..], &[0xff; 9], &first_message()[..first_message().len() - 1]] {
        assert!(SnapshotMessage::decode(bytes, Limits::default()).is_err());
    }
}
