//! Which requests can be granted: the rules of the modes.
//!
//! A request is granted when it conflicts with no holder and no waiter ahead of it, when no lock delay and no freeze
//! closes the lock, and when the group owns its slot. Exclusive conflicts with everything. Shared conflicts with everything but shared. A permit
//! conflicts with everything but permits, and with permits only when all are taken.

use crate::model::command::{Acquire, Mode, Policy};
use crate::model::name::LockName;
use crate::model::outcome::Rejection;
use crate::model::time::Span;
use crate::state::hold::HoldKey;
use crate::state::lock::Lock;
use crate::state::queue::{Counts, Ticket};
use crate::state::table::LockTable;

impl LockTable {
    /// Whether it could be granted to a new request.
    pub(crate) fn admits_newcomer(&self, name: &LockName, mode: Mode) -> bool {
        let Some(lock) = self.lock_map().get(name) else {
            return !self.freezes_in_force().cover(name);
        };
        if self.is_shut(name, lock) {
            return false;
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::ReaderOvertakesWriter.is_active() && mode == Mode::Shared {
            return self.admits(name, lock, mode, Counts::NONE, None);
        }
        self.admits(name, lock, mode, lock.queue().counts(), None)
    }

    /// Whether the acquire would only join a queue behind other waiters. This is the present table's answer; commands
    /// that are not applied yet may change it.
    pub fn would_wait_behind_others(&self, acquire: &Acquire) -> bool {
        let Acquire { name, mode, terms, .. } = acquire;
        let waits = terms.wait > Span::ZERO && !terms.reentrant;
        let only_waits = matches!(terms.policy, Policy::Detect | Policy::Wait);
        let has_queue = || self.lock_map().get(name).is_some_and(|held| !held.queue().is_empty());
        waits && only_waits && has_queue() && !self.admits_newcomer(name, *mode)
    }

    /// Whether the lock is frozen, closed by a lock delay, or of another group, so that it is granted to no request.
    pub(crate) fn is_shut(&self, name: &LockName, lock: &Lock) -> bool {
        lock.closed_until().is_some()
            || self.freezes_in_force().cover(name)
            || !self.ownership().covers(name)
    }

    /// Whether it could be granted to the waiter at this place.
    pub(crate) fn admits_waiter(&self, name: &LockName, ticket: Ticket) -> bool {
        let Some(lock) = self.lock_map().get(name) else { return false };
        let Some(waiter) = lock.queue().get(ticket) else { return false };
        if self.is_shut(name, lock) {
            return false;
        }
        // The holders first. The count of the waiters ahead matters only for permits.
        let mode = waiter.mode;
        if !self.admits(name, lock, mode, Counts::NONE, None)
            || !lock.queue().all_before_are_like(mode, Some(ticket))
        {
            return false;
        }
        let Mode::Permit { .. } = mode else { return true };
        let permits = (lock.queue().position(ticket) - 1) as usize;
        self.admits(name, lock, mode, Counts { permits, ..Counts::NONE }, None)
    }

    /// Whether it could be granted, given the holders and the waiters ahead. A hold that is being converted does not
    /// block itself.
    pub(crate) fn admits(
        &self,
        name: &LockName,
        lock: &Lock,
        mode: Mode,
        ahead: Counts,
        converts: Option<HoldKey>,
    ) -> bool {
        if let Some(key) = converts {
            return ahead.total() == 0 && lock.holder_count() == 1 && lock.hold(key).is_some();
        }
        #[cfg(feature = "planted")]
        {
            use crate::planted::Bug::{PermitsOffByOne, SharedBesideExclusive};
            let held = lock.mode();
            let off_by_one = PermitsOffByOne.is_active()
                && matches!((held, mode), (Some(Mode::Permit { .. }), Mode::Permit { .. }))
                && lock.holder_count() + ahead.permits == self.permits_of(name, mode);
            let beside = SharedBesideExclusive.is_active()
                && (held, mode) == (Some(Mode::Exclusive), Mode::Shared);
            if (off_by_one || beside) && ahead.are_all_like(mode) {
                return true;
            }
        }
        ahead.are_all_like(mode)
            && match (lock.mode(), mode) {
                (None, Mode::Exclusive | Mode::Shared) | (Some(Mode::Shared), Mode::Shared) => true,
                (None | Some(Mode::Permit { .. }), Mode::Permit { .. }) => {
                    lock.holder_count() + ahead.permits < self.permits_of(name, mode)
                }
                _ => false,
            }
    }

    /// How many permits a semaphore has: the operator's setting, or the number that its users state.
    pub(crate) fn permits_of(&self, name: &LockName, mode: Mode) -> usize {
        let stated = match mode {
            Mode::Permit { limit } => limit,
            Mode::Exclusive | Mode::Shared => 1,
        };
        self.stored_permits().get(name).copied().unwrap_or(stated) as usize
    }

    /// The mode with the effective number of permits. Refused if it contradicts the number in use.
    pub(crate) fn settle_permits(&self, name: &LockName, mode: Mode) -> Result<Mode, Rejection> {
        let Mode::Permit { limit: stated } = mode else { return Ok(mode) };
        let set = self.stored_permits().get(name).copied();
        let in_use = || self.lock_map().get(name).and_then(Lock::stated_permits);
        match (set.or_else(in_use), stated) {
            (Some(limit), stated) if stated == limit => Ok(mode),
            (Some(limit), 0) if set.is_some() => Ok(Mode::Permit { limit }),
            (Some(limit), _) => Err(Rejection::OtherPermits { limit }),
            (None, 0) => Err(Rejection::NoPermitsSet),
            (None, _) => Ok(mode),
        }
    }
}
