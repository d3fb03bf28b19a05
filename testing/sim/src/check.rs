//! The checkers: each takes a [`History`] and finds the promises that were broken.
//!
//! One file per promise. A checker works with what the history has: those that need the replicated part
//! find nothing in a run with real processes, where only the clients' side is known.

use crate::history::{History, Violation};

pub mod access;
pub mod ages;
pub mod all_or_nothing;
pub mod closed_locks;
pub mod deadlock;
pub mod deduplication;
mod evidence;
pub mod exclusion;
pub mod expiry;
pub mod fence;
pub mod fifo;
mod findings;
pub mod groups;
mod holders;
pub mod interventions;
pub mod linearizability;
mod log;
pub mod losses;
pub mod ownership;
mod promises;
pub mod quotas;
pub(crate) mod refused_copies;
pub mod replicas;
pub mod restore;
#[cfg(test)]
mod test_history;
pub mod tokens;
pub mod validity;
pub mod wait_timeouts;

pub use evidence::Evidence;
pub use promises::{ExpiryBound, Promises};

/// Runs every checker, with the usual promises.
pub fn check(history: &History) -> Vec<Violation> {
    check_with(history, &Promises::default())
}

/// Runs every checker.
pub fn check_with(history: &History, promises: &Promises) -> Vec<Violation> {
    let evidence = Evidence::of(history);
    let mut violations = Vec::new();
    violations.extend(replicas::check(&evidence));
    violations.extend(exclusion::check(&evidence));
    violations.extend(tokens::check(&evidence));
    violations.extend(fifo::check(&evidence));
    violations.extend(all_or_nothing::check(&evidence));
    violations.extend(deadlock::check(&evidence));
    violations.extend(ages::check(&evidence));
    violations.extend(interventions::check(&evidence));
    violations.extend(access::check(&evidence));
    violations.extend(quotas::check(&evidence));
    violations.extend(ownership::check(&evidence));
    violations.extend(closed_locks::check(&evidence, promises));
    violations.extend(validity::check(&evidence));
    violations.extend(deduplication::check(&evidence));
    violations.extend(expiry::check(&evidence, promises));
    violations.extend(wait_timeouts::check(&evidence, promises));
    violations.extend(losses::check(history));
    violations.extend(fence::check(&evidence));
    violations.extend(linearizability::check(&evidence, promises));
    violations
}
