//! `SetPermits`: an operator sets how many permits a semaphore has.

use alloc::vec::Vec;

use crate::model::event::Event;
use crate::model::name::LockName;
use crate::model::outcome::{Intervened, Rejection};
use crate::state::hold::Actor;
use crate::state::table::LockTable;

/// Waiters of a semaphore that are looked at for cycles when it gets fewer permits.
const WAITERS_LOOKED_AT_MAX: usize = 1_000;

impl LockTable {
    /// More permits go to the next in line. A lower number takes no permit away, so there may be more holders than the
    /// new number until enough of them release.
    pub(crate) fn set_permits(
        &mut self,
        name: LockName,
        limit: Option<u32>,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        let in_use = self.lock_map().get(&name).is_some_and(|used| used.stated_permits().is_some());
        match limit {
            None if in_use => return Err(Rejection::PermitsInUse),
            Some(_)
                if !self.stored_permits().contains_key(&name)
                    && self.stored_permits().len() >= self.limits().stored_permits_max =>
            {
                return Err(Rejection::TooManyPermitsSet);
            }
            limit => self.store_permits(&name, limit),
        }
        let waiters: Vec<Actor> = self
            .lock_map()
            .get(&name)
            .into_iter()
            .flat_map(|lock| lock.queue().iter())
            .take(WAITERS_LOOKED_AT_MAX)
            .map(|(_, waiter)| (waiter.session, waiter.actor))
            .collect();
        let mut steps = self.search_steps();
        for waiter in waiters {
            self.end_waits_in_cycles(waiter, None, &mut steps, events);
        }
        self.note_freed(name);
        Ok(Intervened::PermitsSet)
    }
}
