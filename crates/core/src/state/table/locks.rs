//! Adds and removes locks, closes and opens them, and notes those that have become free.

use alloc::collections::BTreeSet;

use crate::model::name::LockName;
use crate::model::time::LogicalTime;
use crate::state::deferred::Promotion;
use crate::state::lock::Lock;
use crate::state::size;
use crate::state::table::LockTable;

impl LockTable {
    pub(super) fn change_or_add_lock<R>(
        &mut self,
        name: &LockName,
        change: impl FnOnce(&LockName, &mut Lock) -> R,
    ) -> R {
        let locks = self.locks.len();
        let changed = self.locks.change_or_add(name, change);
        if self.locks.len() > locks {
            self.size += size::of_lock(name);
        }
        changed
    }

    /// Removes a lock without holders, waiters and lock delay.
    pub(crate) fn forget_lock(&mut self, name: &LockName) {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::FreeNameKept.is_active() {
            return;
        }
        if self.locks.remove(name).is_some() {
            self.size = self.size.saturating_sub(size::of_lock(name));
            self.deferred.forget(name);
        }
    }

    /// Closes a lock until then, or until a later time that it is closed for already.
    pub(crate) fn close_lock(&mut self, name: &LockName, end: LogicalTime) {
        let (before, until) = self.change_or_add_lock(name, |_, lock| {
            let before = lock.closed_until();
            let until = before.map_or(end, |before| before.max(end));
            lock.close_until(Some(until));
            (before, until)
        });
        if let Some(before) = before {
            self.closed.remove(&(before, name.clone()));
        }
        self.closed.insert((until, name.clone()));
    }

    /// Returns whether it was closed.
    pub(crate) fn open_lock(&mut self, name: &LockName) -> bool {
        let Some(lock) = self.locks.get_mut(name) else { return false };
        let Some(until) = lock.closed_until() else { return false };
        lock.close_until(None);
        self.closed.remove(&(until, name.clone()));
        true
    }

    /// Notes that a lock has become free, or easier to get.
    pub(crate) fn note_freed(&mut self, name: LockName) {
        self.freed.insert(name);
    }

    pub(crate) fn take_freed(&mut self) -> BTreeSet<LockName> {
        core::mem::take(&mut self.freed)
    }

    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    pub(crate) fn defer(&mut self, promotion: Promotion) {
        self.deferred.push(promotion);
    }

    pub(crate) fn take_deferred(&mut self) -> Option<Promotion> {
        self.deferred.pop()
    }
}
