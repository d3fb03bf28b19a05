//! Who is in whose way at one lock.
//!
//! Readers share, and permits are many; everybody else is in the way alone. But who stands before the last that
//! wants the lock in another way is in the way alone too, however it wants it: that last one waits for each of them,
//! and everybody behind waits for that last one. Who stands behind it can be passed by.

use alloc::collections::BTreeMap;

use super::stuck::Obstacle;
use crate::model::command::Mode;
use crate::model::name::LockName;
use crate::state::hold::Actor;
use crate::state::queue::Ticket;

/// Those in the way of one who wants a lock in this mode, and how often each of them is.
pub(super) struct Blockers {
    mode: Mode,
    /// The last ahead who wants it in another way.
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

    /// One stuck actor of the first kind is enough, and as many of the second as there are permits.
    pub(super) fn obstacles(self, name: &LockName, permits: usize) -> [Option<Obstacle<'_>>; 2] {
        [(self.alone, 1), (self.by_permits, permits)].map(|(actors, stuck_min)| {
            (!actors.is_empty()).then_some(Obstacle { name, actors, stuck_min })
        })
    }
}
