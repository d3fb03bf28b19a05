//! Messages that a leader of version 0.1 sent: this build follows it, and takes its snapshot.
//!
//! Recorded there from a cluster of three: node 1 is elected, a session takes 25 locks, and node 3 is away for
//! most of them, so that it is sent a snapshot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_core::{Limits, LockTable, Span};
use holdfast_replica::{Durable, Effect, GroupId, NodeId, Replica, ReplicaConfig};
use protobuf::Message as _;
use raft::eraftpb::{Message, MessageType};

const TO_NODE_2: &[u8] = include_bytes!("fixtures/version-1/messages-to-node-2");
/// From the snapshot on.
const TO_NODE_3: &[u8] = include_bytes!("fixtures/version-1/messages-to-node-3");
const LOCKS: usize = 25;

/// Each message has its length before it, as four bytes, little endian.
fn messages(mut file: &'static [u8]) -> Vec<&'static [u8]> {
    let mut messages = Vec::new();
    while let Some((length, rest)) = file.split_first_chunk::<4>() {
        let (message, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        messages.push(message);
        file = rest;
    }
    messages
}

fn kinds(messages: &[&[u8]]) -> BTreeSet<String> {
    let kind = |bytes: &&[u8]| Message::parse_from_bytes(bytes).unwrap().get_msg_type();
    messages.iter().map(kind).map(|kind| format!("{kind:?}")).collect()
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

/// Takes the messages in, one a turn, and gives the kinds of what it answers.
fn follow(replica: &mut Replica, messages: &[&[u8]]) -> BTreeSet<String> {
    let mut answers = BTreeSet::new();
    for message in messages {
        replica.handle_message(message).unwrap();
        while let Some(turn) = replica.begin_turn() {
            let mut effects = Vec::new();
            replica.finish_turn(&mut effects).unwrap();
            let later = effects.into_iter().filter_map(|effect| match effect {
                Effect::Send(message) => Some(message),
                _ => None,
            });
            for sent in turn.messages.into_iter().chain(later) {
                answers.extend(kinds(&[&sent.message]));
            }
        }
    }
    answers
}

fn assert_has_all_locks(table: &LockTable) {
    assert_eq!((table.lock_count(), table.session_count()), (LOCKS, 1));
    for number in 1..=LOCKS {
        let status = table.status(&format!("lock-{number}"), 1);
        assert_eq!(status.holders[0].token.0, number as u64);
    }
}

#[test]
fn a_follower_votes_for_an_old_leader_and_follows_it() {
    let messages = messages(TO_NODE_2);
    let expected = ["MsgAppend", "MsgHeartbeat", "MsgRequestPreVote", "MsgRequestVote"];
    assert!(expected.iter().all(|kind| kinds(&messages).contains(*kind)));
    let mut replica = fresh(2);
    let answers = follow(&mut replica, &messages);
    for kind in [
        MessageType::MsgRequestPreVoteResponse,
        MessageType::MsgRequestVoteResponse,
        MessageType::MsgAppendResponse,
        MessageType::MsgHeartbeatResponse,
    ] {
        assert!(answers.contains(&format!("{kind:?}")), "{kind:?} is not among {answers:?}");
    }
    assert_eq!(replica.leadership().leader, Some(NodeId(1)));
    assert_has_all_locks(replica.table());
}

#[test]
fn a_follower_that_lags_takes_the_snapshot_of_an_old_leader_and_what_comes_after() {
    let messages = messages(TO_NODE_3);
    assert!(kinds(&messages[..1]).contains("MsgSnapshot"));
    let mut replica = fresh(3);
    follow(&mut replica, &messages[..1]);
    let by_snapshot = replica.table().lock_count();
    assert!(by_snapshot > 3 && by_snapshot < LOCKS, "{by_snapshot} locks");
    follow(&mut replica, &messages[1..]);
    assert_has_all_locks(replica.table());
}
