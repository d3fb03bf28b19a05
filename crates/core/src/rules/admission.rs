//! Who may be granted what: the rules of the modes.
//!
//! A request is granted when nothing in its way conflicts with it: no holder, nobody ahead of it in the
//! queue, no closed door, no freeze. Exclusive conflicts with everything, shared with everything but
//! shared, a permit with everything but permits, and with those as soon as they are all out.

use crate::model::command::{Acquire, Mode, Policy};
use crate::model::name::LockName;
use crate::model::outcome::Rejection;
use crate::model::time::Span;
use crate::state::hold::HoldKey;
use crate::state::queue::{Counts, Ticket};
use crate::state::resource::Resource;
use crate::state::table::LockTable;

impl LockTable {
    /// Could it be granted to somebody who comes only now?
    pub(crate) fn admits_newcomer(&self, name: &LockName, mode: Mode) -> bool {
        let Some(resource) = self.lock_map().get(name) else {
            return !self.freezes_in_force().cover(name);
        };
        if self.is_shut(name, resource) {
            return false;
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ReaderOvertakesWriter.is_active() && mode == Mode::Shared {
            return self.admits(name, resource, mode, Counts::NONE, None);
        }
        self.admits(name, resource, mode, resource.queue().counts(), None)
    }

    /// Whether all that comes of it now is a place in a queue, behind others. As the table stands: what is yet to be
    /// applied may change it.
    pub fn would_wait_behind_others(&self, acquire: &Acquire) -> bool {
        let Acquire { name, mode, terms, .. } = acquire;
        let waits = terms.wait > Span::ZERO && !terms.reentrant;
        let only_waits = matches!(terms.policy, Policy::Detect | Policy::Wait);
        let has_queue = || self.lock_map().get(name).is_some_and(|held| !held.queue().is_empty());
        waits && only_waits && has_queue() && !self.admits_newcomer(name, *mode)
    }

    /// Frozen, or closed by a lock delay: nobody is granted it.
    pub(crate) fn is_shut(&self, name: &LockName, resource: &Resource) -> bool {
        resource.closed_until().is_some() || self.freezes_in_force().cover(name)
    }

    /// Could it be granted to the one who stands at this place?
    pub(crate) fn admits_waiter(&self, name: &LockName, ticket: Ticket) -> bool {
        let Some(resource) = self.lock_map().get(name) else { return false };
        let Some(waiter) = resource.queue().get(ticket) else { return false };
        if self.is_shut(name, resource) {
            return false;
        }
        // The holders first, and the count of those ahead only where it matters: for permits.
        let mode = waiter.mode;
        if !self.admits(name, resource, mode, Counts::NONE, None)
            || !resource.queue().all_before_are_like(mode, Some(ticket))
        {
            return false;
        }
        let Mode::Permit { .. } = mode else { return true };
        let permits = (resource.queue().position(ticket) - 1) as usize;
        self.admits(name, resource, mode, Counts { permits, ..Counts::NONE }, None)
    }

    /// Could it be granted, past the holders and those who are ahead? A hold that is to be converted is
    /// not in its own way.
    pub(crate) fn admits(
        &self,
        name: &LockName,
        resource: &Resource,
        mode: Mode,
        ahead: Counts,
        converts: Option<HoldKey>,
    ) -> bool {
        if let Some(key) = converts {
            return ahead.total() == 0
                && resource.holder_count() == 1
                && resource.hold(key).is_some();
        }
        #[cfg(feature = "planted")]
        {
            use crate::planted::Bug::{PermitsOffByOne, SharedBesideExclusive};
            let held = resource.mode();
            let off_by_one = PermitsOffByOne.is_active()
                && matches!((held, mode), (Some(Mode::Permit { .. }), Mode::Permit { .. }))
                && resource.holder_count() + ahead.permits == self.permits_of(name, mode);
            let beside = SharedBesideExclusive.is_active()
                && (held, mode) == (Some(Mode::Exclusive), Mode::Shared);
            if (off_by_one || beside) && ahead.are_all_like(mode) {
                return true;
            }
        }
        ahead.are_all_like(mode)
            && match (resource.mode(), mode) {
                (None, Mode::Exclusive | Mode::Shared) | (Some(Mode::Shared), Mode::Shared) => true,
                (None | Some(Mode::Permit { .. }), Mode::Permit { .. }) => {
                    resource.holder_count() + ahead.permits < self.permits_of(name, mode)
                }
                _ => false,
            }
    }

    /// How many permits a semaphore has: what an operator has set, or what those who use it state.
    pub(crate) fn permits_of(&self, name: &LockName, mode: Mode) -> usize {
        let stated = match mode {
            Mode::Permit { limit } => limit,
            Mode::Exclusive | Mode::Shared => 1,
        };
        self.stored_permits().get(name).copied().unwrap_or(stated) as usize
    }

    /// The mode with the number of permits that is meant, unless that contradicts what is in use.
    pub(crate) fn settle_permits(&self, name: &LockName, mode: Mode) -> Result<Mode, Rejection> {
        let Mode::Permit { limit: stated } = mode else { return Ok(mode) };
        let set = self.stored_permits().get(name).copied();
        let in_use = || self.lock_map().get(name).and_then(Resource::stated_permits);
        match (set.or_else(in_use), stated) {
            (Some(limit), stated) if stated == limit => Ok(mode),
            (Some(limit), 0) if set.is_some() => Ok(Mode::Permit { limit }),
            (Some(limit), _) => Err(Rejection::OtherPermits { limit }),
            (None, 0) => Err(Rejection::NoPermitsSet),
            (None, _) => Ok(mode),
        }
    }
}
