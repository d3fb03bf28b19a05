//! Between the library's types and ours.

use std::collections::BTreeSet;

use holdfast_core::LogicalTime;
use protobuf::Message as _;
use raft::eraftpb::{
    ConfState, Entry, EntryType, HardState as RaftHardState, Message, MessageType, Snapshot,
};

use crate::effect::Outgoing;
use crate::heard_time::HeardTime;
use crate::id::NodeId;
use crate::log_store::{HardState, LogEntry, SnapshotFile};
use crate::membership::Configuration;

/// The library's context of an entry that is a note about members, and no batch of commands.
pub(super) const NOTE_MARK: &[u8] = b"members";

/// No term, index or commit gets here in the life of a cluster; and one can be added to it.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

/// How entries are told apart on disk.
mod kind {
    pub(super) const COMMANDS: u8 = 0;
    pub(super) const CHANGE_OF_ONE: u8 = 1;
    pub(super) const CHANGE: u8 = 2;
    pub(super) const NOTE: u8 = 3;
}

pub(super) fn outgoing(messages: Vec<Message>, heard: HeardTime) -> Vec<Outgoing> {
    messages
        .into_iter()
        .filter_map(|mut message| {
            say_time(&mut message, heard);
            let is_snapshot = message.get_msg_type() == MessageType::MsgSnapshot;
            // It fails only if a required field is missing, and proto3 has none.
            let bytes = message.write_to_bytes().ok()?;
            Some(Outgoing { to: NodeId(message.to), message: bytes, is_snapshot })
        })
        .collect()
}

/// A heartbeat says the time of its leader, a vote what the voter heard of the time. They do so in fields that the
/// library leaves empty in these messages, and does not read.
fn say_time(message: &mut Message, heard: HeardTime) {
    let is_said = match message.get_msg_type() {
        // One that was made before this leader stepped down is not for this one's successor to fill.
        MessageType::MsgHeartbeat => message.term == heard.term,
        MessageType::MsgRequestVoteResponse => true,
        _ => false,
    };
    // Peers refuse numbers beyond this, and no time gets there.
    if is_said && heard.time.as_ms() <= NUMBER_MAX {
        message.log_term = heard.term;
        message.index = heard.time.as_ms();
    }
}

/// What [`say_time`] said; nothing if the sender is of a version that says nothing.
pub(super) fn said_time(message: &Message) -> HeardTime {
    match message.get_msg_type() {
        MessageType::MsgHeartbeat | MessageType::MsgRequestVoteResponse => {
            HeardTime { term: message.log_term, time: LogicalTime::from_ms(message.index) }
        }
        _ => HeardTime::default(),
    }
}

pub(super) fn from_raft_entry(entry: &Entry) -> LogEntry {
    LogEntry {
        index: entry.index,
        term: entry.term,
        kind: kind_of(entry),
        data: entry.data.clone(),
    }
}

pub(super) fn to_raft_entry(entry: &LogEntry) -> Entry {
    Entry {
        entry_type: match entry.kind {
            kind::CHANGE_OF_ONE => EntryType::EntryConfChange,
            kind::CHANGE => EntryType::EntryConfChangeV2,
            _ => EntryType::EntryNormal,
        },
        context: match entry.kind {
            kind::NOTE => NOTE_MARK.into(),
            _ => Default::default(),
        },
        index: entry.index,
        term: entry.term,
        data: entry.data.clone(),
        ..Entry::default()
    }
}

fn kind_of(entry: &Entry) -> u8 {
    match entry.get_entry_type() {
        EntryType::EntryNormal if entry.context == NOTE_MARK => kind::NOTE,
        EntryType::EntryNormal => kind::COMMANDS,
        EntryType::EntryConfChange => kind::CHANGE_OF_ONE,
        EntryType::EntryConfChangeV2 => kind::CHANGE,
    }
}

pub(super) fn from_raft_state(state: &RaftHardState) -> HardState {
    HardState { term: state.term, vote: state.vote, commit: state.commit }
}

pub(super) fn to_raft_state(state: HardState) -> RaftHardState {
    RaftHardState {
        term: state.term,
        vote: state.vote,
        commit: state.commit,
        ..RaftHardState::default()
    }
}

pub(super) fn from_raft_snapshot(snapshot: &Snapshot) -> Option<SnapshotFile> {
    (!snapshot.is_empty()).then(|| {
        let metadata = snapshot.get_metadata();
        SnapshotFile { index: metadata.index, term: metadata.term, data: snapshot.data.clone() }
    })
}

pub(super) fn from_conf_state(state: &ConfState) -> Configuration {
    let set = |ids: &[u64]| ids.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
    Configuration {
        voters: set(&state.voters),
        outgoing: set(&state.voters_outgoing),
        learners: set(&state.learners),
    }
}

/// The joint state is left by us and not by the library; see `members`.
pub(super) fn to_conf_state(configuration: &Configuration) -> ConfState {
    let list = |set: &BTreeSet<NodeId>| set.iter().map(|node| node.0).collect::<Vec<u64>>();
    ConfState {
        voters: list(&configuration.voters),
        voters_outgoing: list(&configuration.outgoing),
        learners: list(&configuration.learners),
        ..ConfState::default()
    }
}
