//! Bugs of what the simulation has a twin of: that no peer talks to a node that lost its disk, and when a peer says to a
//! node that it was removed.

use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that a node's peers could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Bug {
    /// A node whose disk was wiped comes back under its old id.
    WipedNodeComesBack,
    /// A node is refused as removed when one group has removed it.
    RefusedByOneGroup,
}

const NONE: u8 = u8::MAX;

static ACTIVE: AtomicU8 = AtomicU8::new(NONE);

/// This bug is active from now on, and no other of this kind.
pub(super) fn activate(bug: Option<Bug>) {
    ACTIVE.store(bug.map_or(NONE, |bug| bug as u8), Ordering::Relaxed);
}

impl Bug {
    pub(crate) fn is_active(self) -> bool {
        ACTIVE.load(Ordering::Relaxed) == self as u8
    }
}
