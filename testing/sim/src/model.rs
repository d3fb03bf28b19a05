//! The real lock table, driven through *every* order of a few moves by a few clients.
//!
//! Breadth first from a small beginning, up to a depth. A state is what the table encodes to, the time, and what
//! clients could repeat; each is visited once. After every move:
//! * the table agrees with itself ([`LockTable::check`]) and with a plain account kept from its events: one
//!   holder or readers, rising tokens, first come first served, nothing for the dead or the cancelled, nor behind a
//!   closed door, all or nothing, no hold ended early;
//! * the same command of a client again changes nothing and is answered alike;
//! * the table's bytes decode to a table with the same bytes.
//!
//! Caveat: small scopes find most bugs, not all. Times are multiples of 100 ms, limits are not reached, and a
//! state that differs only in absolute time or tokens counts as another.
//!
//! [`LockTable::check`]: holdfast_core::LockTable::check

mod account;
mod explore;
mod moves;
mod setup;

pub use explore::{Broken, Reached, explore};
pub use moves::Move;

/// What is explored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// At most [`SESSIONS_MAX`].
    pub sessions: usize,
    /// At most [`NAMES_MAX`].
    pub names: usize,
    /// How many moves follow each other.
    pub depth: u32,
    pub kind: Kind,
    /// Stops early when this many states are known.
    pub states_max: usize,
}

/// Which moves there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Exclusive locks, in every way.
    Exclusive,
    /// Leaves out what only varies: tries, holds with bounds of their own, streams, touches, wrong tokens.
    ExclusiveEssentials,
    /// Readers, acquire-alls, conversions, re-entry, ages, lock delays, and operators who step in.
    Modes,
    /// Permits of one semaphore, alone and together with another lock, while operators set how many there are.
    Permits,
}

pub const SESSIONS_MAX: usize = 3;
pub const NAMES_MAX: usize = 2;

impl Scope {
    /// Three clients, two locks, every move.
    pub const WIDE: Scope =
        Scope { sessions: 3, names: 2, depth: 5, kind: Kind::Exclusive, states_max: 1_000_000 };
    /// Two clients at one lock, every move, for longer.
    pub const DEEP: Scope =
        Scope { sessions: 2, names: 1, depth: 7, kind: Kind::Exclusive, states_max: 1_000_000 };
    /// Two clients at two locks, in all modes.
    pub const MODES: Scope =
        Scope { sessions: 2, names: 2, depth: 4, kind: Kind::Modes, states_max: 1_000_000 };
    /// Three clients at a semaphore and a lock.
    pub const PERMITS: Scope =
        Scope { sessions: 3, names: 2, depth: 5, kind: Kind::Permits, states_max: 1_000_000 };
    /// Three clients in one queue, for longest.
    pub const QUEUE: Scope = Scope {
        sessions: 3,
        names: 1,
        depth: 9,
        kind: Kind::ExclusiveEssentials,
        states_max: 1_000_000,
    };
}

#[cfg(test)]
mod tests {
    use super::{Scope, explore};

    fn assert_reaches(scope: &Scope, states: usize) {
        let reached = explore(scope).unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(reached.depth, scope.depth);
        assert!(reached.states >= states, "{reached:?}");
    }

    #[test]
    fn everything_that_three_clients_can_do_in_a_few_moves_keeps_the_promises() {
        assert_reaches(&Scope { depth: 3, ..Scope::WIDE }, 5_000);
    }

    #[test]
    fn everything_that_two_clients_can_do_at_one_lock_keeps_the_promises() {
        assert_reaches(&Scope { depth: 4, ..Scope::DEEP }, 5_000);
    }

    #[test]
    fn everything_that_two_clients_can_do_in_all_modes_keeps_the_promises() {
        assert_reaches(&Scope { depth: 3, ..Scope::MODES }, 5_000);
    }

    #[test]
    fn everything_that_three_clients_can_do_at_a_semaphore_keeps_the_promises() {
        assert_reaches(&Scope { depth: 3, ..Scope::PERMITS }, 5_000);
    }

    #[test]
    fn everything_that_three_clients_can_do_in_one_queue_keeps_the_promises() {
        assert_reaches(&Scope { depth: 5, ..Scope::QUEUE }, 5_000);
    }
}
