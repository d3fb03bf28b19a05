//! One append-only log for all raft groups of a shard, and their snapshot files.
//!
//! A shard can serve several groups in one loop. In each pass of the loop it buffers what every group must keep, then
//! makes it durable: one write and one sync, however many groups took part. In this crate a *turn* is what one such
//! pass writes. The log knows only the shape of what Raft stores: entries with an index and a term, and a hard state.
//!
//! On disk the log is a sequence of segments, `log-<sequence>.seg`. A segment is a sequence of turns. A turn is a
//! sequence of blocks of 512 bytes, each with a checksum. The joined payload of the blocks is a sequence of records. A
//! snapshot is a separate file, `snap-<group>-<index>.snap`.
//!
//! # Invariants
//!
//! - A turn is durable as a whole when [`Wal::sync_turn`] returns `Ok`, and recovered as a whole or not at
//!   all. Turn n+1 is written only after turn n was synced, so only the last turn can be torn.
//! - A turn lies within one segment, and starts on a fresh block. Space is zeroed and synced before it
//!   is used, so a block holds zeros, or what was written there, or damage.
//! - Damage in anything that was ever synced makes [`Wal::open`] refuse, and name file and offset. It
//!   is never repaired and never skipped.
//! - The first turn of a segment repeats, for every group, the hard state (term, vote, commit
//!   index) and the snapshot mark (index and term of the newest snapshot). So only the entries of
//!   older segments are still needed, and a segment is deleted when every group has a snapshot that
//!   covers its entries.
//! - A snapshot has its name only once it is complete and synced. Every creation, rename and removal is
//!   followed by a sync of the directory before anything relies on it.
//! - A sync that failed poisons the log and all that write to it; every later call answers with the same error. It is
//!   never tried again while the log is open; the next [`Wal::open`] writes the last turn once more.
//!
//! # Caveats
//!
//! - A turn that was not acknowledged may still be found after a crash, as a whole. Raft allows that.
//! - If *all* blocks of the last turn become zeros, the turn looks as if it was never written. Likewise, deleting files
//!   at the end of the log leaves no trace.
//! - Writing 512 aligned bytes is taken to be atomic.
//! - After a failed sync of the *directory*, the file of a snapshot may be visible although it is
//!   not durable, and opening the log again does not make it durable. We accept this, because file
//!   systems refuse further writes after such a failure.
//! - [`SnapshotWriter::write`] does not check two things that its caller must ensure: the state
//!   contains only committed entries, and a snapshot at the index of an installed one has the same
//!   term.
//! - A log is read whole into memory when it is opened.
//! - [`Wal::sync_turn`] zeroes the next segment itself unless it was given a [`Spare`] in time.

mod block;
mod chunked_write;
mod disk;
mod error;
mod garbage;
mod name;
#[cfg(feature = "planted")]
pub mod planted;
mod record;
mod recover;
mod replay;
mod scan;
mod segment;
mod snapshot;
mod store;
mod wal;

pub use disk::{
    DirectoryError, Disk, DiskFile, FileDisk, OpenFile, Operation, SimDisk, SimFile, TraceEvent,
    Unsynced,
};
pub use error::{AppendError, FatalError, OpenError, SnapshotError, WriteError};
pub use garbage::Garbage;
pub use segment::{SegmentPreparer, Spare};
pub use snapshot::{DurableSnapshot, SnapshotWriter};
pub use wal::{ENTRY_BYTES_MAX, Options, Stats, Wal};

/// An entry as it was recovered. `kind` and `data` are opaque.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub index: u64,
    pub term: u64,
    pub kind: u8,
    pub data: Vec<u8>,
}

/// An entry to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntryRef<'a> {
    pub index: u64,
    pub term: u64,
    pub kind: u8,
    pub data: &'a [u8],
}

/// What a replica must never forget besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    pub term: u64,
    /// The node voted for in this term, 0 for none.
    pub vote: u64,
    pub commit: u64,
}

/// The state of a group after the entry at `index`; the data is opaque.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub index: u64,
    pub term: u64,
    pub data: Vec<u8>,
}

/// A snapshot to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRef<'a> {
    pub index: u64,
    pub term: u64,
    pub data: &'a [u8],
}

impl<'a> From<&'a Snapshot> for SnapshotRef<'a> {
    fn from(snapshot: &'a Snapshot) -> SnapshotRef<'a> {
        SnapshotRef { index: snapshot.index, term: snapshot.term, data: &snapshot.data }
    }
}

/// What [`Wal::open`] recovered of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLog {
    pub group: u32,
    /// Its commit index is at least that of the snapshot.
    pub hard_state: HardState,
    pub snapshot: Option<Snapshot>,
    /// Without a gap, from the index after the snapshot's on.
    pub entries: Vec<LogEntry>,
}
