//! Messages that are not taken in: what an honest member never sends, and what the library would panic on.

use raft::eraftpb::{ConfState, EntryType, Message, MessageType};

use super::{Consensus, MessageError};

/// No term, index or commit gets here in the life of a cluster; and one can be added to it.
const NUMBER_MAX: u64 = 1 << 62;

impl Consensus {
    /// What an honest member of this group never sends, and what the library would panic on, or follow to
    /// where it cannot come back from.
    pub(super) fn refuse_contradictions(&self, message: &Message) -> Result<(), MessageError> {
        use MessageError::Contradiction;
        if message.term == 0 {
            // The library would take it for its own.
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
            MessageType::MsgAppend => self.refuse_false_entries(message),
            // A follower does not care: what it sent as a leader it may have lost in a crash since.
            MessageType::MsgAppendResponse
                if self.is_leader() && !message.reject && message.index > last_index =>
            {
                Err(Contradiction("it acknowledges entries that are not in the log"))
            }
            MessageType::MsgSnapshot => self.refuse_false_snapshot(message),
            _ => Ok(()),
        }
    }

    fn refuse_false_entries(&self, message: &Message) -> Result<(), MessageError> {
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
            if entry.get_entry_type() != EntryType::EntryNormal {
                return Err(Contradiction("it changes the membership, which never changes"));
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

    fn refuse_false_snapshot(&self, message: &Message) -> Result<(), MessageError> {
        use MessageError::Contradiction;
        let log = &self.raft.raft.raft_log;
        let metadata = message.get_snapshot().get_metadata();
        if metadata.index == 0 || metadata.term == 0 || metadata.term > message.term {
            return Err(Contradiction("its snapshot is of no entry, or of a later term"));
        }
        if !is_same_membership(metadata.get_conf_state(), &self.raft.store().members) {
            return Err(Contradiction("its snapshot is of a group with other members"));
        }
        let known = log.term(metadata.index);
        if metadata.index == log.committed && known.is_ok_and(|known| known != metadata.term) {
            return Err(Contradiction("its snapshot replaces a committed entry"));
        }
        Ok(())
    }
}

/// All that is counted with.
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

/// Whether both have the same voters, in any order, and nobody else.
fn is_same_membership(claimed: &ConfState, known: &ConfState) -> bool {
    let sorted = |voters: &[u64]| {
        let mut voters = voters.to_vec();
        voters.sort_unstable();
        voters
    };
    sorted(&claimed.voters) == sorted(&known.voters)
        && claimed.learners.is_empty()
        && claimed.voters_outgoing.is_empty()
        && claimed.learners_next.is_empty()
        && !claimed.auto_leave
}
