//! What a replica asks the shard to do, as data.

use holdfast_core::{Event, LogIndex, LogicalTime, Outcome};

use crate::id::{ClusterId, NodeId};
use crate::log_store::{HardState, LogEntry, SnapshotFile};
use crate::membership::{ChangeRefusal, Membership};

/// The shard's name for a call or a read, given back with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A consensus message for another node, opaque to all other code.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub to: NodeId,
    pub message: Vec<u8>,
    /// It carries a whole snapshot, and needs a separate stream.
    pub is_snapshot: bool,
}

/// What one replica wants in one pass of the engine; etcd and raft-rs call it a `Ready`. `messages` may be sent at
/// once: a leader replicates while its own disk writes. `reads` may be answered at once, too. Everything else must be
/// durable before `finish_turn`.
#[derive(Debug, Default)]
pub struct Turn {
    pub messages: Vec<Outgoing>,
    /// Reads for which the table is recent enough. They see earlier commits, and do not wait for the disk.
    pub reads: Vec<Ticket>,
    /// Replaces the whole log up to its index. Before the entries.
    pub snapshot: Option<SnapshotFile>,
    /// Entries to append. An entry at a used index replaces the tail from there on.
    pub entries: Vec<LogEntry>,
    pub hard_state: Option<HardState>,
}

impl Turn {
    pub fn needs_disk(&self) -> bool {
        self.snapshot.is_some() || !self.entries.is_empty() || self.hard_state.is_some()
    }
}

/// What follows from a pass, before and after its write, in order.
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
    /// An event of the table, on every replica.
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
    /// The members from this log entry on, on every replica.
    MembershipChanged {
        index: u64,
        members: Membership,
    },
    /// The result of `handle_backup`: the state at logical time `at`.
    BackupMade {
        ticket: Ticket,
        cluster: Option<ClusterId>,
        at: LogicalTime,
        file: SnapshotFile,
    },
    /// Make this durable beside the log, then call `handle_snapshot_saved`.
    SaveSnapshot(SnapshotFile),
}

/// The leader, as far as this replica knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    pub leader: Option<NodeId>,
    pub is_here: bool,
    pub term: u64,
}

/// Why a replica could not complete a call. This is not an answer of the lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Nothing was done.
    NotLeader { leader: Option<NodeId> },
    /// Leadership was lost after the proposal. The command may have been committed.
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
