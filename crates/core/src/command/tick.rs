//! The leader's own commands: `Tick` ends what is due, `BeginTerm` grants the grace of a new leader.

use alloc::vec::Vec;

use crate::event::Event;
use crate::id::{FenceToken, RequestId, SessionId};
use crate::outcome::Outcome;
use crate::table::LockTable;
use crate::table::answers::Reply;
use crate::table::deadlines::Due;
use crate::time::Span;

impl LockTable {
    /// Works off deadlines up to now, in order of time, a bounded number of them. Locks go to the
    /// next in line only when all have been worked off: nothing is granted to one that ends with the
    /// same tick.
    pub(crate) fn tick(&mut self, events: &mut Vec<Event>) -> Outcome {
        while let Some(due) = self.deadlines.first_due(self.now)
            && self.may_end_one_more()
        {
            match due {
                Due::Session(session) => self.expire_session(session, events),
                Due::Hold(session, request, token) => {
                    self.expire_hold(session, request, token, events);
                }
                Due::Wait(session, request) => {
                    self.end_wait(session, request, Reply::TimedOut, events);
                }
            }
            #[cfg(feature = "planted")]
            self.deadlines
                .forget_first_due_of_the_dead(self.now, |id| self.sessions.contains_key(&id));
        }
        while let Some((until, name)) = self.closed.first().cloned()
            && until <= self.now
            && self.may_end_one_more()
        {
            self.reopen(&name, events);
        }
        // It is there, so it can be thawed, unless too much that was thawed is still being gone through.
        while let Some(prefix) = self.freezes.first_due(self.now)
            && self.thaw(&prefix, events).is_ok()
        {}
        Outcome::Done
    }

    /// Sessions and holds that would end sooner live for `grace` from now, once since they were last
    /// touched or renewed: their owners need time to find the new leader, and elections that follow
    /// each other must not keep a dead owner's locks for ever. A max-hold is not moved: no renewal
    /// could have.
    pub(crate) fn begin_term(&mut self, grace: Span) -> Outcome {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TermRestartsTtl.is_active() {
            let all: Vec<SessionId> = self.sessions.keys().copied().collect();
            all.into_iter().for_each(|id| self.touch(id));
        }
        let until = self.now.after(grace);
        let soon: Vec<Due> = self.deadlines.before(until).collect();
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
        let until = self.now.after(grace);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::GraceWithoutBound.is_active() {
            session.graced = false;
        }
        if !session.graced {
            let was_due = session.deadline <= self.now;
            self.deadlines.replace(session.deadline, until, Due::Session(id));
            session.deadline = until;
            session.graced = true;
            if was_due {
                self.resume_lines_of(id);
            }
        }
    }

    fn grace_hold(&mut self, id: SessionId, request: RequestId, token: FenceToken, grace: Span) {
        let until = self.now.after(grace);
        let Some(session) = self.sessions.get(&id) else { return };
        for name in session.held_by(request) {
            let resource = self.resources.get_mut(name);
            let hold = resource.and_then(|resource| resource.hold_mut((id, request)));
            let Some(hold) = hold.filter(|hold| hold.token == token) else { continue };
            let before = hold.deadline();
            if let (Some(before), Some(after)) = (before, hold.grace(until)) {
                self.deadlines.replace(before, after, Due::Hold(id, request, token));
            }
        }
    }
}
