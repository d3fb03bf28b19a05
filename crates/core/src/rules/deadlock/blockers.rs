//! The blockers of a waiter at one lock.
//!
//! A single actor of a conflicting mode blocks on its own. Actors of the same mode do not: readers share, and permits
//! are many. But a waiter ahead of the last one with another mode blocks on its own, too, whatever its mode: that last
//! one waits for each waiter ahead of it, and all waiters behind it wait for it. Waiters of the same mode behind it do
//! not block.

use alloc::collections::BTreeMap;

use super::stuck::Obstacle;
use crate::model::command::Mode;
use crate::model::name::LockName;
use crate::state::hold::Actor;
use crate::state::queue::Ticket;

/// The blockers of an actor that wants a lock in this mode, and how often each of them blocks.
pub(super) struct Blockers {
    mode: Mode,
    /// The last waiter ahead that wants another mode.
    last_unlike: Option<Ticket>,
    alone: BTreeMap<Actor, usize>,
    by_permits: BTreeMap<Actor, usize>,
}

impl Blockers {
    pub(super) fn of(mode: Mode, last_unlike: Option<Ticket>) -> Blockers {
        Blockers { mode, last_unlike, alone: BTreeMap::new(), by_permits: BTreeMap::new() }
    }

    pub(super) fn add_holder(&mut self, actor: Actor, mode: Mode) {
        self.add(actor, mode, self.last_unlike.is_some());
    }

    pub(super) fn add_waiter(&mut self, actor: Actor, mode: Mode, ticket: Ticket) {
        self.add(actor, mode, self.last_unlike.is_some_and(|last| ticket < last));
    }

    fn add(&mut self, actor: Actor, mode: Mode, is_before_one_unlike: bool) {
        let those = match (self.mode, mode) {
            _ if is_before_one_unlike => &mut self.alone,
            (Mode::Shared, Mode::Shared) => return,
            (Mode::Permit { .. }, Mode::Permit { .. }) => &mut self.by_permits,
            _ => &mut self.alone,
        };
        *those.entry(actor).or_default() += 1;
    }

    /// For the first kind one stuck blocker is enough; for the second, as many as there are permits.
    pub(super) fn obstacles(self, name: &LockName, permits: usize) -> [Option<Obstacle<'_>>; 2] {
        [(self.alone, 1), (self.by_permits, permits)].map(|(actors, stuck_min)| {
            (!actors.is_empty()).then_some(Obstacle { name, actors, stuck_min })
        })
    }
}
