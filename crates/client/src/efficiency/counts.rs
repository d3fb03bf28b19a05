//! How often what came of asking the efficiency tier.

use std::sync::atomic::{AtomicU64, Ordering};

/// Since the client was connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EfficiencyCounts {
    /// Locks that the efficiency tier granted.
    pub granted: u64,
    /// Calls that ended because another holder had the lock.
    pub busy: u64,
    /// Calls that found the efficiency tier down, whatever the policy made of it.
    pub down: u64,
    /// Of these, work that went on without a lock.
    pub went_without: u64,
    /// Of these, calls that were passed on to the correctness tier.
    pub fell_back: u64,
    /// Calls for the efficiency tier that a requirement refused.
    pub refused: u64,
    /// Extensions of locks outside of the cluster.
    pub renewed: u64,
    /// Locks outside of the cluster that were lost and not released.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    granted: AtomicU64,
    busy: AtomicU64,
    down: AtomicU64,
    went_without: AtomicU64,
    fell_back: AtomicU64,
    refused: AtomicU64,
}

macro_rules! count {
    ($($name:ident),*) => {
        impl Counts {
            $(
                pub(crate) fn $name(&self) {
                    self.$name.fetch_add(1, Ordering::Relaxed);
                }
            )*

            pub(super) fn read(&self) -> EfficiencyCounts {
                EfficiencyCounts {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    ..EfficiencyCounts::default()
                }
            }
        }
    };
}

count!(granted, busy, down, went_without, fell_back, refused);
