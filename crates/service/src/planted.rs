//! Bugs that are planted on purpose, to show that the simulation finds them. They exist only with the
//! feature `planted`, which only the simulation turns on; one at a time is active, in the whole process.

use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that the service could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A waiter for several locks is shown with those that the caller may not read.
    HiddenNameShown,
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
