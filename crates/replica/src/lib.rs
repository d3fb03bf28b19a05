//! One replica of one Raft group: consensus and lock table together.
//!
//! [`Replica`] is pure, like the lock table below it: no I/O, no clock, no thread. Inputs are
//! `handle_*` calls. Each pass has two halves, before and after the disk write. The first half
//! sends and answers what needs no disk. The second half acknowledges to peers before it applies
//! anything:
//!
//! ```text
//! handle_message / handle_call / handle_read / propose_membership / handle_time ...   in any order
//! begin_turn()       -> Turn       send `messages` and answer `reads` now; make the rest of it durable
//! answer_committed() -> effects    before the write: what was committed earlier
//! acknowledge()      -> messages   after the sync
//! finish_turn()      -> effects    send, answer, read, save a snapshot
//! ```
//!
//! # Invariants
//!
//! * A call is answered only after its commit. A message that promises something is sent only after that is durable
//!   here: `acknowledge` returns such messages. A read sees only what was committed before.
//! * Followers learn the commit index with the next entries. If there are none, the leader sends it
//!   about a millisecond after the commit. The shard begins the next turn within
//!   [`Replica::next_turn_within`].
//! * Only a leader stamps time. Its stamps continue from the highest stamp in its log, including the uncommitted tail,
//!   or from a later time that the leader of the last entry sent.
//! * Only a leader that has committed in its own term lets the table expire anything.
//! * The membership is replicated state. Log entries change it, one change at a time. A change counts from the moment
//!   at which its entry is applied. (In the Raft paper it counts from the append; the `raft` crate works like this.)
//! * Everything is deterministic: the same inputs give the same turns and effects, if the election timeout is fixed
//!   (see [`ReplicaConfig::election_ticks`]).

mod backup;
mod clock;
mod config;
mod consensus;
mod effect;
mod found;
mod id;
mod leader_time;
mod log_store;
mod membership;
mod pending;
#[cfg(feature = "planted")]
pub mod planted;
mod reads;
mod replica;
mod restore;
mod snapshot_body;

pub use backup::{BackupError, BackupHeader, BodyCheck};
pub use config::ReplicaConfig;
pub use consensus::MessageError;
pub use effect::{Effect, Leadership, Outgoing, Ticket, Turn, Unavailable};
pub use found::{FOUNDING_INDEX, found_group};
pub use id::{ClusterId, DirectoryId, GroupId, NodeId};
pub use log_store::{Durable, HardState, LogEntry, SnapshotFile};
pub use membership::{
    ChangeRefusal, Configuration, Member, Membership, MembershipBytesError, MembershipChange, Role,
};
pub use replica::{Fatal, HandOverRefusal, Progress, Replica, SnapshotMessage, StartError};
pub use restore::{
    BEST_EFFORT_TERM_END, GroupRestoreOptions, GroupRestoreSummary, RestoreError, SalvageError,
    TOKEN_FLOOR_MAX, TOKENS_PER_TERM_BITS, read_snapshot, restore_group, salvage,
    snapshot_versions,
};
pub use snapshot_body::SnapshotError;
