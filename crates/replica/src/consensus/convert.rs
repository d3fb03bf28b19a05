//! Between the library's types and ours.

use protobuf::Message as _;
use raft::eraftpb::{Entry, EntryType, HardState as RaftHardState, Message, MessageType, Snapshot};

use super::Committed;
use crate::effect::Outgoing;
use crate::id::NodeId;
use crate::log_store::{HardState, LogEntry, SnapshotFile};

pub(super) fn outgoing(messages: Vec<Message>) -> Vec<Outgoing> {
    messages
        .into_iter()
        .filter_map(|message| {
            let is_snapshot = message.get_msg_type() == MessageType::MsgSnapshot;
            // It fails only if a required field is missing, and proto3 has none.
            let bytes = message.write_to_bytes().ok()?;
            Some(Outgoing { to: NodeId(message.to), message: bytes, is_snapshot })
        })
        .collect()
}

pub(super) fn committed(entry: Entry) -> Committed {
    let kind = kind_number(entry.get_entry_type());
    Committed { index: entry.index, term: entry.term, kind, data: entry.data }
}

pub(super) fn from_raft_entry(entry: &Entry) -> LogEntry {
    LogEntry {
        index: entry.index,
        term: entry.term,
        kind: kind_number(entry.get_entry_type()),
        data: entry.data.clone(),
    }
}

pub(super) fn to_raft_entry(entry: &LogEntry) -> Entry {
    Entry {
        entry_type: match entry.kind {
            1 => EntryType::EntryConfChange,
            2 => EntryType::EntryConfChangeV2,
            _ => EntryType::EntryNormal,
        },
        index: entry.index,
        term: entry.term,
        data: entry.data.clone(),
        ..Entry::default()
    }
}

fn kind_number(kind: EntryType) -> u8 {
    match kind {
        EntryType::EntryNormal => 0,
        EntryType::EntryConfChange => 1,
        EntryType::EntryConfChangeV2 => 2,
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
