//! What a replica wants done: data, carried out by the shard.

use holdfast_core::{Event, LogIndex, LogicalTime, Outcome};

use crate::id::{ClusterId, NodeId};
use crate::log_store::{HardState, LogEntry, SnapshotFile};
use crate::membership::{ChangeRefusal, Membership};

/// The shard's name for a call or a read, given back with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A consensus message for another node, opaque to everybody else.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub to: NodeId,
    pub message: Vec<u8>,
    /// It carries a whole snapshot, and wants a stream of its own.
    pub is_snapshot: bool,
}

/// The first half of a loop turn. The order is the contract: `messages` may be sent at once (a
/// leader replicates while its own disk works), and `reads` may be answered; everything else must be durable
/// before `finish_turn`.
#[derive(Debug, Default)]
pub struct Turn {
    pub messages: Vec<Outgoing>,
    /// The table is recent enough for these: what they see was committed earlier, and waits for no disk.
    pub reads: Vec<Ticket>,
    /// Replaces the whole log up to its index. Before the entries.
    pub snapshot: Option<SnapshotFile>,
    /// To append. An index that is already taken replaces the tail from there on.
    pub entries: Vec<LogEntry>,
    pub hard_state: Option<HardState>,
}

impl Turn {
    pub fn needs_disk(&self) -> bool {
        self.snapshot.is_some() || !self.entries.is_empty() || self.hard_state.is_some()
    }
}

/// The second half of a loop turn, in the order in which it came about.
#[derive(Debug)]
pub enum Effect {
    Send(Outgoing),
    /// The command was committed and applied.
    Answer {
        ticket: Ticket,
        at: LogicalTime,
        outcome: Outcome,
    },
    /// The command or the read could not be carried through.
    Failed {
        ticket: Ticket,
        reason: Unavailable,
    },
    /// The table is now recent enough for this read.
    Read {
        ticket: Ticket,
    },
    /// Something happened in the table; on every replica.
    Happened {
        index: LogIndex,
        at: LogicalTime,
        event: Event,
    },
    LeadershipChanged(Leadership),
    /// A change of the membership is complete, or refused with nothing in the log.
    ChangeEnded {
        ticket: Ticket,
        result: Result<(), ChangeRefusal>,
    },
    /// Who the members are from this entry of the log on; on every replica.
    MembershipChanged {
        index: u64,
        members: Membership,
    },
    /// What was asked for by `handle_backup`: the state at logical time `at`.
    BackupMade {
        ticket: Ticket,
        cluster: Option<ClusterId>,
        at: LogicalTime,
        file: SnapshotFile,
    },
    /// Make this durable beside the log, then say `handle_snapshot_saved`.
    SaveSnapshot(SnapshotFile),
}

/// Who leads, as far as this replica knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    pub leader: Option<NodeId>,
    pub is_here: bool,
    pub term: u64,
}

/// Why a replica could not carry something through. Not an answer of the lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Nothing was done.
    NotLeader { leader: Option<NodeId> },
    /// Leadership was lost on the way: it may have happened.
    LeadershipLost { leader: Option<NodeId> },
    /// Nothing was done: too much is uncommitted.
    Overloaded,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_turn_needs_the_disk_for_whatever_must_survive() {
        let entry = LogEntry { index: 1, term: 1, kind: 0, data: Bytes::new() };
        let snapshot = SnapshotFile { index: 1, term: 1, data: Bytes::new() };
        let message = Outgoing { to: NodeId(2), message: Vec::new(), is_snapshot: false };
        assert!(!Turn::default().needs_disk());
        assert!(!Turn { messages: vec![message], ..Turn::default() }.needs_disk());
        assert!(Turn { entries: vec![entry], ..Turn::default() }.needs_disk());
        assert!(Turn { snapshot: Some(snapshot), ..Turn::default() }.needs_disk());
        let hard_state = Some(HardState::default());
        assert!(Turn { hard_state, ..Turn::default() }.needs_disk());
    }
}
