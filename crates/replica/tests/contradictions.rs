//! Messages that no honest member of the group sends are refused, each with its reason; those that are
//! merely late are not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use std::time::Duration;

use bytes::Bytes;
use holdfast_core::{Batch, Limits, LockTable, LogicalTime, Span};
use holdfast_replica::{Durable, GroupId, NodeId, Replica, ReplicaConfig};
use protobuf::Message as _;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType};

const TERM: u64 = 5;
const NUMBER_MAX: u64 = 1 << 62;

/// Node 1 of three. It follows node 2 in term 5, and has the entries 1 to 4 of the terms 3, 4, 5 and 5,
/// the first two of which are committed.
struct Follower(Replica);

impl Follower {
    fn new() -> Follower {
        let config = ReplicaConfig {
            group: GroupId(1),
            node: NodeId(1),
            voters: vec![NodeId(1), NodeId(2), NodeId(3)],
            tick: Duration::from_millis(50),
            heartbeat_ticks: 2,
            election_ticks: (10, 11),
            grace: Span::from_ms(1_000),
            snapshot_every_entries: u64::MAX,
            snapshot_every_bytes: u64::MAX,
            snapshot_slice_entries: 2,
            snapshot_slice_pause: Duration::ZERO,
            keep_entries: 2,
            keep_bytes: u64::MAX,
            limits: Limits::default(),
        };
        let mut follower = Follower(Replica::new(config, Durable::default()).unwrap());
        let entries = [(1, 3), (2, 4), (3, 5), (4, 5)].map(|(index, term)| entry(index, term));
        let history = Message { commit: 2, ..append(0, 0, entries.into()) };
        follower.hear(&history).unwrap();
        follower.turn();
        assert_eq!((follower.0.progress().last_index, follower.0.progress().commit_index), (4, 2));
        follower
    }

    fn hear(&mut self, message: &Message) -> Result<(), String> {
        let bytes = message.write_to_bytes().unwrap();
        self.0.handle_message(&bytes).map_err(|error| error.to_string())
    }

    fn turn(&mut self) {
        while self.0.begin_turn().is_some() {
            self.0.finish_turn(&mut Vec::new()).unwrap();
        }
    }

    /// Has nodes 2 and 3 vote for it, in the term after.
    fn make_leader(&mut self) {
        for step in 1..=11 {
            self.0.handle_time(Duration::from_millis(50 * step));
        }
        self.turn();
        for kind in [MessageType::MsgRequestPreVoteResponse, MessageType::MsgRequestVoteResponse] {
            self.hear(&Message { term: TERM + 1, ..message(kind) }).unwrap();
            self.turn();
        }
        assert!(self.0.leadership().is_here);
    }
}

fn message(kind: MessageType) -> Message {
    let mut message = Message { from: 2, to: 1, term: TERM, ..Message::default() };
    message.set_msg_type(kind);
    message
}

/// An entry with an empty batch in it.
fn entry(index: u64, term: u64) -> Entry {
    let batch = Batch { at: LogicalTime::ZERO, commands: Vec::new() };
    Entry { index, term, data: batch.encode().into(), ..Entry::default() }
}

fn append(index: u64, log_term: u64, entries: Vec<Entry>) -> Message {
    let entries = entries.into();
    Message { index, log_term, entries, ..message(MessageType::MsgAppend) }
}

fn snapshot(index: u64, term: u64) -> Message {
    let mut message = message(MessageType::MsgSnapshot);
    let snapshot = message.mut_snapshot();
    let voters: [u64; 3] = [1, 2, 3];
    let mut data = vec![1];
    data.extend_from_slice(&3_u16.to_le_bytes());
    data.extend(voters.iter().flat_map(|voter| voter.to_le_bytes()));
    data.extend(LockTable::new(Limits::default()).encode());
    snapshot.data = Bytes::from(data);
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (index, term);
    metadata.mut_conf_state().voters = voters.into();
    message
}

/// For one of the reasons, which are told apart by `|`.
fn assert_refused(message: &Message, reason: &str) {
    let refused = Follower::new().hear(message).expect_err(reason);
    let expected = reason.split('|').any(|reason| refused.contains(reason));
    assert!(expected, "{refused}, not {reason}");
}

fn assert_taken(message: &Message) {
    Follower::new().hear(message).unwrap_or_else(|error| panic!("{error}: {message:?}"));
}

#[test]
fn a_message_is_accepted_only_by_its_addressee_and_only_from_another_member() {
    let heartbeat = || message(MessageType::MsgHeartbeat);
    assert_taken(&heartbeat());
    assert_refused(&Message { to: 3, ..heartbeat() }, "for node 3 reached node");
    assert_refused(&Message { from: 1, ..heartbeat() }, "cannot be a member");
    assert_refused(&Message { from: 0, ..heartbeat() }, "cannot be a member");
}

#[test]
fn node_local_message_kinds_are_refused_from_peers() {
    for kind in [
        MessageType::MsgHup,
        MessageType::MsgBeat,
        MessageType::MsgPropose,
        MessageType::MsgUnreachable,
        MessageType::MsgSnapStatus,
        MessageType::MsgCheckQuorum,
        MessageType::MsgTransferLeader,
        MessageType::MsgReadIndex,
        MessageType::MsgReadIndexResp,
    ] {
        assert_refused(&message(kind), "not taken from peers");
    }
}

#[test]
fn a_message_without_a_term_is_refused() {
    assert_refused(&Message { term: 0, ..message(MessageType::MsgHeartbeat) }, "no term");
}

#[test]
fn impossibly_large_numbers_are_refused_in_every_field() {
    let beyond = |change: fn(&mut Message, u64)| {
        // Of a kind that looks at none of them.
        let mut message = message(MessageType::MsgHeartbeatResponse);
        change(&mut message, NUMBER_MAX + 1);
        assert_refused(&message, "beyond all that can be reached");
    };
    beyond(|message, number| message.term = number);
    beyond(|message, number| message.log_term = number);
    beyond(|message, number| message.index = number);
    beyond(|message, number| message.commit = number);
    beyond(|message, number| message.commit_term = number);
    beyond(|message, number| message.reject_hint = number);
    beyond(|message, number| message.mut_snapshot().mut_metadata().index = number);
    beyond(|message, number| message.mut_snapshot().mut_metadata().term = number);
    beyond(|message, number| message.entries = vec![entry(number, 1)].into());
    beyond(|message, number| message.entries = vec![entry(1, number)].into());
    assert_taken(&Message { index: NUMBER_MAX, ..message(MessageType::MsgHeartbeatResponse) });
}

#[test]
fn a_request_for_a_snapshot_is_refused() {
    let response = message(MessageType::MsgAppendResponse);
    assert_refused(&Message { request_snapshot: 3, ..response }, "asks for a snapshot");
}

#[test]
fn a_message_of_a_former_leader_changes_nothing() {
    let mut follower = Follower::new();
    for mut late in [
        Message { commit: 9, ..message(MessageType::MsgHeartbeat) },
        append(4, 5, vec![entry(9, 5)]),
        snapshot(0, 0),
    ] {
        late.term = TERM - 1;
        follower.hear(&late).unwrap();
    }
    follower.turn();
    assert_eq!((follower.0.progress().last_index, follower.0.progress().commit_index), (4, 2));
}

#[test]
fn a_heartbeat_commits_only_what_is_in_the_log() {
    let heartbeat = |commit| Message { commit, ..message(MessageType::MsgHeartbeat) };
    assert_taken(&heartbeat(4));
    assert_refused(&heartbeat(5), "commits entries that are not in the log");
}

#[test]
fn a_follower_cannot_have_more_than_its_leader_ever_sent() {
    let response = |index, reject| {
        let response = message(MessageType::MsgAppendResponse);
        Message { index, reject, term: TERM + 1, ..response }
    };
    let mut leader = Follower::new();
    leader.make_leader();
    let last = leader.0.progress().last_index;
    leader.hear(&response(last, false)).unwrap();
    leader.hear(&response(last + 1, true)).unwrap();
    let refused = leader.hear(&response(last + 1, false)).unwrap_err();
    assert!(refused.contains("acknowledges entries that are not in the log"), "{refused}");
    // To one that does not lead, it may be an answer to what it sent before it crashed.
    assert_taken(&Message { term: TERM, ..response(last + 1, false) });
}

#[test]
fn entries_follow_each_other_and_their_terms_rise() {
    assert_taken(&append(4, 5, vec![]));
    assert_taken(&append(4, 5, vec![entry(5, 5), entry(6, 5)]));
    assert_taken(&append(0, 0, vec![entry(1, 3), entry(2, 4)]));
    assert_refused(&append(4, 0, vec![entry(5, 5)]), "has no term");
    assert_refused(&append(4, 5, vec![entry(6, 5)]), "not contiguous");
    assert_refused(&append(4, 5, vec![entry(4, 5)]), "not contiguous");
    assert_refused(&append(4, 5, vec![entry(5, 5), entry(7, 5)]), "not contiguous");
    assert_refused(&append(0, 0, vec![entry(1, 0)]), "not in order");
    assert_refused(&append(4, 5, vec![entry(5, 4)]), "not in order");
    assert_refused(&append(2, 4, vec![entry(3, 5), entry(4, 4)]), "not in order");
    assert_refused(&append(4, 5, vec![entry(5, 6)]), "not in order");
}

#[test]
fn entries_that_change_the_members_are_refused() {
    for kind in [EntryType::EntryConfChange, EntryType::EntryConfChangeV2] {
        let mut change = entry(5, 5);
        change.set_entry_type(kind);
        assert_refused(&append(4, 5, vec![change]), "changes the membership");
    }
}

#[test]
fn only_what_is_not_committed_is_replaced() {
    // Term 3 for entry 2, where term 4 is committed.
    assert_refused(&append(1, 3, vec![entry(2, 3)]), "replaces a committed entry");
    assert_refused(&append(1, 3, vec![entry(2, 5)]), "replaces a committed entry");
    assert_taken(&append(1, 3, vec![entry(2, 4), entry(3, 4)]));
}

#[test]
fn a_snapshot_of_an_impossible_entry_is_refused() {
    assert_taken(&snapshot(9, 5));
    assert_refused(&snapshot(0, 5), "of no entry, or of a later term");
    assert_refused(&snapshot(9, 0), "of no entry, or of a later term");
    assert_refused(&snapshot(9, 6), "of no entry, or of a later term");
}

#[test]
fn a_snapshot_does_not_replace_what_is_committed() {
    assert_refused(&snapshot(2, 3), "replaces a committed entry");
    assert_taken(&snapshot(2, 4));
    // It may replace what is not, and is of no use below.
    assert_taken(&snapshot(3, 4));
    assert_taken(&snapshot(1, 1));
}

#[test]
fn the_order_of_the_members_in_a_snapshot_does_not_matter() {
    let of = |change: fn(&mut ConfState)| {
        let mut message = snapshot(9, 5);
        change(message.mut_snapshot().mut_metadata().mut_conf_state());
        message
    };
    assert_taken(&of(|members| members.voters.reverse()));
    for other in [
        of(|members| members.voters.truncate(2)),
        of(|members| members.voters.push(4)),
        of(|members| members.learners.push(4)),
        of(|members| members.voters_outgoing.push(3)),
        of(|members| members.learners_next.push(3)),
        of(|members| members.auto_leave = true),
    ] {
        assert_refused(&other, "about the members|members that cannot be");
    }
}
