//! Numbers that threads change and others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Only rises, and only one thread changes it: a plain addition, not a locked one.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

/// Only rises; any thread may change it.
#[derive(Debug, Default)]
pub(crate) struct SharedTally(AtomicU64);

/// Rises and falls; any thread may change it.
#[derive(Debug, Default)]
pub(crate) struct Level(AtomicU64);

impl Tally {
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl SharedTally {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Level {
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn rise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fall(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
