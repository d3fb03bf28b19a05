//! Bugs that are planted on purpose, to show that the simulation finds them. They exist only with the
//! feature `planted`, which only the simulation turns on; one at a time is active, in the whole process.

use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that the lease logic could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// No margin for clocks that run at different rates.
    NoMargin,
    /// The deadline of the hold itself is not looked at.
    HoldDeadlineIgnored,
    /// A best-effort hold is believed in though the leader that keeps it is lost.
    BestEffortKeptWithoutLeader,
    /// A session is trusted for its TTL, though the servers may end it a shorter linger time after its connection.
    LingerIgnored,
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
