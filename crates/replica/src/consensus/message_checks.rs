//! Checks of messages from peers: refuses messages that no correct member sends, and those on which the library panics.

use protobuf::Message as _;
use raft::eraftpb::{
    ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType, Message,
    MessageType,
};

use super::convert::{NOTE_MARK, NUMBER_MAX, from_conf_state, to_conf_state};
use super::{Consensus, MessageError};
use crate::membership::{Note, decode_addition};

impl Consensus {
    /// Refuses messages that no correct member sends, and messages that would make the library panic or corrupt its
    /// state.
    pub(super) fn check_message(&self, message: &Message) -> Result<(), MessageError> {
        use MessageError::Contradiction;
        if message.term == 0 {
            // The library would take it for a local message.
            return Err(Contradiction("it has no term"));
        }
        if numbers(message).any(|number| number > NUMBER_MAX) {
            return Err(Contradiction("a number in it is beyond all that can be reached"));
        }
        if message.request_snapshot != 0 {
            return Err(Contradiction("it asks for a snapshot, which leaders send by themselves"));
        }
        if message.term < self.term() {
            return Ok(());
        }
        let last_index = self.last_index();
        match message.get_msg_type() {
            MessageType::MsgHeartbeat if message.commit > last_index => {
                Err(Contradiction("it commits entries that are not in the log"))
            }
            MessageType::MsgAppend => self.check_entries(message),
            // A follower ignores it: it may have lost in a crash what it sent as a leader.
            MessageType::MsgAppendResponse
                if self.is_leader() && !message.reject && message.index > last_index =>
            {
                Err(Contradiction("it acknowledges entries that are not in the log"))
            }
            MessageType::MsgSnapshot => self.check_snapshot(message),
            _ => Ok(()),
        }
    }

    fn check_entries(&self, message: &Message) -> Result<(), MessageError> {
        use MessageError::Contradiction;
        let log = &self.raft.raft.raft_log;
        // An index that is not in the log has term 0 for the library, and would match.
        if message.log_term == 0 && message.index > 0 {
            return Err(Contradiction("the entry before its entries has no term"));
        }
        let (mut previous, mut previous_term) = (message.index, message.log_term);
        for entry in &message.entries {
            if entry.index != previous + 1 {
                return Err(Contradiction("its entries are not contiguous"));
            }
            if entry.term == 0 || entry.term < previous_term || entry.term > message.term {
                return Err(Contradiction("the terms of its entries are not in order"));
            }
            if !is_possible(entry) {
                return Err(Contradiction("it changes the membership in a way that cannot be"));
            }
            (previous, previous_term) = (entry.index, entry.term);
            let known = log.term(entry.index);
            if entry.index <= log.committed
                && known.is_ok_and(|known| known != 0 && known != entry.term)
            {
                return Err(Contradiction("it replaces a committed entry"));
            }
        }
        Ok(())
    }

    fn check_snapshot(&self, message: &Message) -> Result<(), MessageError> {
        use MessageError::Contradiction;
        let log = &self.raft.raft.raft_log;
        let metadata = message.get_snapshot().get_metadata();
        if metadata.index == 0 || metadata.term == 0 || metadata.term > message.term {
            return Err(Contradiction("its snapshot is of no entry, or of a later term"));
        }
        if !is_sound(metadata.get_conf_state()) {
            return Err(Contradiction("its snapshot is of a group with members that cannot be"));
        }
        let known = log.term(metadata.index);
        if metadata.index == log.committed && known.is_ok_and(|known| known != metadata.term) {
            return Err(Contradiction("its snapshot replaces a committed entry"));
        }
        Ok(())
    }
}

/// All numbers with which the library calculates.
fn numbers(message: &Message) -> impl Iterator<Item = u64> {
    let metadata = message.get_snapshot().get_metadata();
    let fields = [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
        metadata.index,
        metadata.term,
    ];
    fields.into_iter().chain(message.entries.iter().flat_map(|entry| [entry.term, entry.index]))
}

/// Whether a leader of this group could have proposed the entry.
fn is_possible(entry: &Entry) -> bool {
    match entry.get_entry_type() {
        EntryType::EntryNormal if entry.context == NOTE_MARK => Note::decode(&entry.data).is_ok(),
        EntryType::EntryNormal => entry.context.is_empty(),
        EntryType::EntryConfChange => false,
        EntryType::EntryConfChangeV2 => ConfChangeV2::parse_from_bytes(&entry.data)
            .is_ok_and(|change| is_possible_change(&change)),
    }
}

fn is_possible_change(change: &ConfChangeV2) -> bool {
    let kinds: Vec<ConfChangeType> =
        change.changes.iter().map(|one| one.get_change_type()).collect();
    match kinds[..] {
        // It leaves the joint state.
        [] => change.get_transition() == ConfChangeTransition::Auto && change.context.is_empty(),
        [ConfChangeType::AddLearnerNode] => decode_addition(&change.context)
            .is_ok_and(|(node, _)| node.0 != 0 && node.0 == change.changes[0].node_id),
        [ConfChangeType::RemoveNode]
        | [ConfChangeType::AddNode]
        | [ConfChangeType::AddNode, ConfChangeType::RemoveNode] => {
            change.context.is_empty()
                && change.get_transition() != ConfChangeTransition::Implicit
                && change.changes.iter().all(|one| one.node_id != 0)
        }
        _ => false,
    }
}

/// Whether the configuration has nothing that this build would not write, and nothing twice.
fn is_sound(state: &ConfState) -> bool {
    let configuration = from_conf_state(state);
    let ours = to_conf_state(&configuration);
    configuration.is_sound() && is_same(&ours, state)
}

fn is_same(ours: &ConfState, theirs: &ConfState) -> bool {
    let sorted = |ids: &[u64]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    ours.voters == sorted(&theirs.voters)
        && ours.voters_outgoing == sorted(&theirs.voters_outgoing)
        && ours.learners == sorted(&theirs.learners)
        && theirs.learners_next.is_empty()
        && !theirs.auto_leave
}
