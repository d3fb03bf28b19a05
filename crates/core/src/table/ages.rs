//! Who is older: the order by which `wait_die` and `wound_wait` decide.
//!
//! An actor is as old as the time at which it first asked, if it says so, and else as its session. Who
//! was refused and asks again with its old time grows older than everybody who comes later, so nobody
//! starves.

use alloc::vec::Vec;

use super::LockTable;
use super::hold::{Actor, Hold, HoldKey};
use super::queue::Waiter;
use crate::command::Mode;
use crate::id::SessionId;
use crate::name::LockName;
use crate::time::LogicalTime;

/// The lower, the older. Of two that are equally old, the ids decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age {
    since: LogicalTime,
    actor: Actor,
}

impl LockTable {
    /// A time in the future counts as now.
    pub(crate) fn since(&self, session: SessionId, since: Option<LogicalTime>) -> LogicalTime {
        let opened_at = || self.sessions.get(&session).map(|session| session.opened_at);
        since.or_else(opened_at).map_or(self.now, |since| since.min(self.now))
    }

    pub(crate) fn age(&self, actor: Actor, since: Option<LogicalTime>) -> Age {
        Age { since: self.since(actor.0, since), actor }
    }

    fn age_of_hold(&self, hold: &Hold) -> Age {
        self.age(hold.actor(), hold.since())
    }

    fn age_of_waiter(&self, waiter: &Waiter) -> Age {
        let session = self.sessions.get(&waiter.session);
        let wait = session.and_then(|session| session.waits.get(waiter.request));
        self.age((waiter.session, waiter.actor), wait.and_then(|wait| wait.terms.since))
    }

    /// Would it wait for an older one: a holder, or somebody ahead who also waits for younger ones only?
    /// Each of those is older than all of them before it, so the last of them is enough.
    pub(crate) fn waits_for_older(&self, age: Age, name: &LockName, mode: Mode) -> bool {
        let Some(resource) = self.resources.get(name) else { return false };
        let in_the_way = |hold: &&Hold| !(hold.mode == Mode::Shared && mode == Mode::Shared);
        resource.holds().filter(in_the_way).any(|hold| self.age_of_hold(hold) < age)
            || resource.queue().last_wait_die().is_some_and(|last| self.age_of_waiter(last) < age)
    }

    /// The holds that an older actor takes away: all that are in its way; of permits, as many as it takes,
    /// the youngest first.
    pub(crate) fn to_be_wounded(&self, age: Age, name: &LockName, mode: Mode) -> Vec<HoldKey> {
        let Some(resource) = self.resources.get(name) else { return Vec::new() };
        let mut wounded: Vec<&Hold> = resource
            .holds()
            .filter(|hold| hold.is_preemptible() && hold.actor() != age.actor)
            .filter(|hold| !(hold.mode == Mode::Shared && mode == Mode::Shared))
            .filter(|hold| age < self.age_of_hold(hold))
            .collect();
        if let (Mode::Permit { .. }, Some(Mode::Permit { .. })) = (mode, resource.mode()) {
            let wanted = resource.holder_count() + resource.queue().counts().permits + 1;
            let missing = wanted.saturating_sub(self.permits_of(name, mode));
            wounded.sort_by_key(|hold| core::cmp::Reverse(self.age_of_hold(hold)));
            wounded.truncate(missing);
        }
        wounded.into_iter().map(Hold::key).collect()
    }
}
