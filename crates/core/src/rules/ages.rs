//! The ages of actors, by which `wait_die` and `wound_wait` decide.
//!
//! An actor is as old as the `since` of its request, or else as old as its session. A refused actor that retries with
//! its old `since` is older than all later actors, so no actor starves.

use alloc::vec::Vec;

use crate::model::command::Mode;
use crate::model::id::SessionId;
use crate::model::name::LockName;
use crate::model::rules_version::RulesVersion;
use crate::model::time::LogicalTime;
use crate::state::hold::{Actor, Hold, HoldKey};
use crate::state::queue::Waiter;
use crate::state::table::LockTable;

/// A lower value is older. Between equal times the ids decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age {
    since: LogicalTime,
    actor: Actor,
}

impl LockTable {
    /// A time in the future counts as now.
    pub(crate) fn since(&self, session: SessionId, since: Option<LogicalTime>) -> LogicalTime {
        let opened_at = || self.session_map().get(&session).map(|session| session.opened_at);
        since.or_else(opened_at).map_or(self.now(), |since| since.min(self.now()))
    }

    pub(crate) fn age(&self, actor: Actor, since: Option<LogicalTime>) -> Age {
        Age { since: self.since(actor.0, since), actor }
    }

    fn age_of_hold(&self, hold: &Hold) -> Age {
        self.age(hold.actor(), hold.since())
    }

    fn age_of_waiter(&self, waiter: &Waiter) -> Age {
        let session = self.session_map().get(&waiter.session);
        let wait = session.and_then(|session| session.waits.get(waiter.request));
        self.age((waiter.session, waiter.actor), wait.and_then(|wait| wait.terms.since))
    }

    /// Whether the request would wait for an older actor: a holder, or a `wait_die` waiter ahead. Each such waiter is
    /// older than those before it, so checking the last one is enough.
    ///
    /// Checking holders takes search steps. Past the bound no older actor is found, and that is counted.
    pub(crate) fn waits_for_older(&mut self, age: Age, name: &LockName, mode: Mode) -> bool {
        let steps = self.holder_steps_left();
        let Some(lock) = self.lock_map().get(name) else { return false };
        let mut looked_at = 0;
        let conflicting = if share(lock.mode(), mode) { 0 } else { lock.holder_count() };
        let is_older = lock.holds().take(steps.min(conflicting)).any(|hold| {
            looked_at += 1;
            self.age_of_hold(hold) < age
        });
        let last = lock.queue().last_wait_die();
        let is_older = is_older || last.is_some_and(|last| self.age_of_waiter(last) < age);
        // The check ends at the first older actor.
        self.charge_holder_steps(looked_at, !is_older && looked_at < conflicting);
        is_older
    }

    /// Without a bound before rules 3.
    fn holder_steps_left(&self) -> usize {
        if self.rules() >= RulesVersion::THREE { self.search_steps() } else { usize::MAX }
    }

    fn charge_holder_steps(&mut self, looked_at: usize, is_cut: bool) {
        if self.rules() >= RulesVersion::THREE {
            let before = self.search_steps();
            self.search_ended(before, before.saturating_sub(looked_at), u64::from(is_cut));
        }
    }

    /// The holds that an older actor takes away: all that block it. Of permits, only as many as needed, the youngest
    /// first. None if there are more holders than may be checked, because taking only some away would not help.
    pub(crate) fn holds_to_wound(
        &mut self,
        age: Age,
        name: &LockName,
        mode: Mode,
    ) -> Option<Vec<HoldKey>> {
        let steps = self.holder_steps_left();
        let Some(lock) = self.lock_map().get(name) else { return Some(Vec::new()) };
        if share(lock.mode(), mode) {
            return Some(Vec::new());
        }
        let holders = lock.holder_count();
        if holders > steps {
            self.charge_holder_steps(0, true);
            return None;
        }
        let mut wounded: Vec<(Age, HoldKey)> = lock
            .holds()
            .filter(|hold| hold.is_preemptible() && hold.actor() != age.actor)
            .map(|hold| (self.age_of_hold(hold), hold.key()))
            .filter(|(of_hold, _)| age < *of_hold)
            .collect();
        if let (Mode::Permit { .. }, Some(Mode::Permit { .. })) = (mode, lock.mode()) {
            let wanted = holders + lock.queue().counts().permits + 1;
            let missing = wanted.saturating_sub(self.permits_of(name, mode));
            wounded.sort_by_key(|(of_hold, _)| core::cmp::Reverse(*of_hold));
            wounded.truncate(missing);
        }
        self.charge_holder_steps(holders, false);
        Some(wounded.into_iter().map(|(_, key)| key).collect())
    }
}

fn share(held: Option<Mode>, wanted: Mode) -> bool {
    held == Some(Mode::Shared) && wanted == Mode::Shared
}
