//! The leader's own commands: `Tick` ends what is due, `BeginTerm` grants the grace of a new leader.

use alloc::vec::Vec;

use crate::model::event::Event;
use crate::model::id::{FenceToken, RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::Outcome;
use crate::model::time::Span;
use crate::state::deadlines::Due;
use crate::state::table::LockTable;

impl LockTable {
    /// Handles a bounded number of deadlines up to now, in order of time. Freed locks are granted only after all of
    /// them: nothing is granted to a waiter that ends with the same tick.
    pub(crate) fn tick(&mut self, events: &mut Vec<Event>) -> Outcome {
        while let Some(due) = self.deadlines().first_due(self.now())
            && self.may_end_one_more()
        {
            match due {
                Due::Session(session) => self.expire_session(session, events),
                Due::Hold(session, request, token) => {
                    self.expire_hold(session, request, token, events);
                }
                Due::Wait(session, request) => self.expire_wait(session, request, events),
            }
            #[cfg(feature = "planted")]
            self.forget_first_due_of_the_dead();
        }
        while let Some((until, name)) = self.closed_locks().first().cloned()
            && until <= self.now()
            && self.may_end_one_more()
        {
            self.reopen(&name, events);
        }
        // The freeze exists, so it can be thawed, unless too many thawed prefixes are still being walked.
        while let Some(prefix) = self.freezes_in_force().first_due(self.now())
            && self.thaw(&prefix, events).is_ok()
        {}
        Outcome::Done
    }

    /// Sessions and holds that would end earlier live for `grace` from now: their clients need time to find the new
    /// leader. Each gets this only once since its last heartbeat or renewal, so that repeated elections do not keep the
    /// locks of a dead client for ever. A max-hold is not moved, as no renewal could move it.
    pub(crate) fn begin_term(&mut self, grace: Span) -> Outcome {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TermRestartsTtl.is_active() {
            let all: Vec<SessionId> = self.session_map().keys().copied().collect();
            all.into_iter().for_each(|id| self.touch(id));
        }
        let until = self.now().after(grace);
        let soon: Vec<Due> = self.deadlines().before(until).collect();
        for due in soon {
            match due {
                Due::Session(id) => self.grace_session(id, grace),
                Due::Hold(id, request, token) => self.grace_hold(id, request, token, grace),
                Due::Wait(..) => {}
            }
        }
        Outcome::Done
    }

    fn grace_session(&mut self, id: SessionId, grace: Span) {
        let now = self.now();
        let was_due = self.change_lease(id, |session| {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::GraceWithoutBound.is_active() {
                session.graced = false;
            }
            let was_due = !session.graced && session.deadline <= now;
            if !session.graced {
                session.deadline = now.after(grace);
                session.graced = true;
            }
            was_due
        });
        if was_due == Some(true) {
            self.resume_promotions_of(id);
        }
    }

    fn grace_hold(&mut self, id: SessionId, request: RequestId, token: FenceToken, grace: Span) {
        let until = self.now().after(grace);
        let Some(session) = self.live_session(id) else { return };
        let is_meant = |name: &&LockName| {
            let hold = self.lock_map().get(*name).and_then(|lock| lock.hold((id, request)));
            hold.is_some_and(|hold| hold.token == token)
        };
        if let Some(name) = session.held_by(request).iter().find(is_meant).cloned() {
            self.change_hold(&name, (id, request), |hold| hold.grace(until));
        }
    }
}
