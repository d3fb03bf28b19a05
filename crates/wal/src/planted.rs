//! Bugs that are planted on purpose, to show that the simulation finds them. They exist only with the
//! feature `planted`, which only the simulation turns on; one at a time is active, in the whole process.

use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that the log could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A turn is written and not synced.
    NoSync,
    /// Term, vote and commit index are not written.
    HardStateNotWritten,
    /// The term is written, but not the vote.
    VoteNotWritten,
    /// A snapshot is read without checking its checksum.
    SnapshotChecksumIgnored,
    /// An entry that replaces others does not do so when the log is read again.
    TruncationNotReplayed,
    /// Segments are deleted although a group still needs them.
    SegmentDeletedTooSoon,
    /// Blocks are read without checking their checksums.
    ChecksumIgnored,
}

const NONE: u8 = u8::MAX;

static ACTIVE: AtomicU8 = AtomicU8::new(NONE);

/// This bug is active from now on, and no other of this crate.
pub fn activate(bug: Option<Bug>) {
    ACTIVE.store(bug.map_or(NONE, |bug| bug as u8), Ordering::Relaxed);
}

impl Bug {
    pub(crate) fn is_active(self) -> bool {
        ACTIVE.load(Ordering::Relaxed) == self as u8
    }
}
