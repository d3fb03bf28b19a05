//! Conversions between the types of the Raft library and those of this crate.

use std::collections::BTreeSet;

use holdfast_core::LogicalTime;
use protobuf::Message as _;
use raft::eraftpb::{
    ConfState, Entry, EntryType, HardState as RaftHardState, Message, MessageType, Snapshot,
};

use crate::effect::Outgoing;
use crate::id::NodeId;
use crate::leader_time::LeaderTime;
use crate::log_store::{HardState, LogEntry, SnapshotFile};
use crate::membership::Configuration;

/// The library's context field of an entry that is a note about members instead of a batch of commands.
pub(super) const NOTE_MARK: &[u8] = b"members";

/// No term, index or commit index reaches this in the life of a cluster, and adding one does not overflow.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

/// The kinds of entries on disk.
mod kind {
    pub(super) const COMMANDS: u8 = 0;
    pub(super) const CHANGE_OF_ONE: u8 = 1;
    pub(super) const CHANGE: u8 = 2;
    pub(super) const NOTE: u8 = 3;
}

pub(super) fn outgoing(messages: Vec<Message>, leader_time: LeaderTime) -> Vec<Outgoing> {
    messages
        .into_iter()
        .filter_map(|mut message| {
            attach_leader_time(&mut message, leader_time);
            let is_snapshot = message.get_msg_type() == MessageType::MsgSnapshot;
            // It fails only if a required field is missing, and proto3 has none.
            let bytes = message.write_to_bytes().ok()?;
            Some(Outgoing { to: NodeId(message.to), message: bytes, is_snapshot })
        })
        .collect()
}

/// Puts the leader time into a heartbeat or a vote: in fields that the library neither sets nor reads in these
/// messages.
fn attach_leader_time(message: &mut Message, leader_time: LeaderTime) {
    let carries_time = match message.get_msg_type() {
        // A heartbeat of an earlier term, made before this node stepped down, must not carry the time of a later
        // leader.
        MessageType::MsgHeartbeat => message.term == leader_time.term,
        MessageType::MsgRequestVoteResponse => true,
        _ => false,
    };
    // Peers refuse numbers beyond this, and no time gets there.
    if carries_time && leader_time.time.as_ms() <= NUMBER_MAX {
        message.log_term = leader_time.term;
        message.index = leader_time.time.as_ms();
    }
}

/// The time that [`attach_leader_time`] put into the message; none if the sender's version sends no time.
pub(super) fn carried_leader_time(message: &Message) -> LeaderTime {
    match message.get_msg_type() {
        MessageType::MsgHeartbeat | MessageType::MsgRequestVoteResponse => {
            LeaderTime { term: message.log_term, time: LogicalTime::from_ms(message.index) }
        }
        _ => LeaderTime::default(),
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

/// The replica leaves the joint state itself, not the library; see `members`.
pub(super) fn to_conf_state(configuration: &Configuration) -> ConfState {
    let list = |set: &BTreeSet<NodeId>| set.iter().map(|node| node.0).collect::<Vec<u64>>();
    ConfState {
        voters: list(&configuration.voters),
        voters_outgoing: list(&configuration.outgoing),
        learners: list(&configuration.learners),
        ..ConfState::default()
    }
}
