//! One replica of one Raft group: consensus and lock table together.
//!
//! [`Replica`] is pure, like the lock table below it: no I/O, no clock, no thread. Inputs are
//! `handle_*` calls; each loop turn then has two halves around the disk, and what somebody waits for comes first in each:
//!
//! ```text
//! handle_message / handle_call / handle_read / propose_membership / handle_time ...   in any order
//! begin_turn()       -> Turn       send `messages` and answer `reads` now; make the rest of it durable
//! answer_committed() -> effects    before the disk works: what was committed earlier
//! acknowledge()      -> messages   after it did
//! finish_turn()      -> effects    send, answer, read, save a snapshot
//! ```
//!
//! # Invariants
//!
//! * Nothing is answered before it is committed, and nothing is sent that promises what is not yet
//!   durable here: messages that do come back from `acknowledge`. A read sees only what was committed before.
//! * Followers hear of what is committed with the next entries, or a millisecond later: between two turns no
//!   more than [`Replica::next_turn_within`] passes.
//! * Only a leader stamps time. Its stamps continue from the highest stamp in its log, the
//!   uncommitted tail included, or from what the leader that wrote the last entry was heard to say later.
//! * Only a leader that has committed in its own term asks the table to expire anything.
//! * The membership is replicated state: it is changed by entries of the log, one change at a time, and
//!   counts from the moment at which its entry is applied.
//! * Everything is deterministic: the same inputs give the same turns and effects, if the election
//!   timeout is fixed (see [`ReplicaConfig::election_ticks`]).

mod anew;
mod backup;
mod clock;
mod config;
mod consensus;
mod effect;
mod heard_time;
mod id;
mod log_store;
mod membership;
mod pending;
#[cfg(feature = "planted")]
pub mod planted;
mod reads;
mod replica;
mod snapshot_body;

pub use anew::{
    Account, AnewError, BEST_EFFORT_TERM_END, SalvageError, TOKEN_FLOOR_MAX, TOKENS_PER_TERM_BITS,
    Terms, begin_anew, read_snapshot, salvage, snapshot_versions,
};
pub use backup::{BackupError, BackupHeader, BodyCheck};
pub use config::ReplicaConfig;
pub use consensus::MessageError;
pub use effect::{Effect, Leadership, Outgoing, Ticket, Turn, Unavailable};
pub use id::{ClusterId, DirectoryId, GroupId, NodeId};
pub use log_store::{Durable, HardState, LogEntry, SnapshotFile};
pub use membership::{
    ChangeRefusal, Configuration, Member, Membership, MembershipBytesError, MembershipChange, Role,
};
pub use replica::{Fatal, HandOverRefusal, Progress, Replica, SnapshotMessage, StartError};
pub use snapshot_body::SnapshotError;
