//! The leader's own commands: `Tick` ends what is due, `BeginTerm` grants the grace of a new leader.

use alloc::vec::Vec;

use crate::event::{EndReason, Event};
use crate::id::{RequestId, SessionId};
use crate::name::LockName;
use crate::outcome::Outcome;
use crate::table::answers::Reply;
use crate::table::deadlines::Due;
use crate::table::{Left, LockTable};
use crate::time::Span;

impl LockTable {
    /// Works off deadlines up to now, in order of time, a bounded number of them. Locks go to the
    /// next in line only when all have been worked off: nothing is granted to one that ends with the
    /// same tick.
    pub(crate) fn tick(&mut self, events: &mut Vec<Event>) -> Outcome {
        let mut freed = Vec::new();
        for _ in 0..self.limits.expiries_per_tick_max {
            match self.deadlines.first_due(self.now) {
                None => break,
                Some(Due::Session(session)) => self.expire_session(session, &mut freed, events),
                Some(Due::Hold(session, request)) => {
                    self.expire_hold(session, request, &mut freed, events);
                }
                Some(Due::Wait(session, request)) => {
                    self.end_wait(session, request, Reply::TimedOut, events);
                }
            }
        }
        self.promote_all_in_tick(freed, events);
        Outcome::Done
    }

    fn expire_hold(
        &mut self,
        id: SessionId,
        request: RequestId,
        freed: &mut Vec<LockName>,
        events: &mut Vec<Event>,
    ) {
        let losses_max = self.limits.remembered_losses_max;
        let Ok(session) = self.session_mut(id) else { return };
        let Some(name) = session.holds.remove(&request) else { return };
        let Some((hold, left)) = self.take_hold(&name, |hold| hold.request == request) else {
            return;
        };
        if let Ok(session) = self.session_mut(id) {
            session.remember_loss(hold.token, losses_max);
        }
        if left == Left::Waiters {
            freed.push(name.clone());
        }
        let reason = if hold.ends_by_max_hold() { EndReason::MaxHold } else { EndReason::Ttl };
        events.push(Event::HoldEnded { name, session: id, request, token: hold.token, reason });
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
                Due::Hold(id, request) => self.grace_hold(id, request, grace),
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
            self.deadlines.replace(session.deadline, until, Due::Session(id));
            session.deadline = until;
            session.graced = true;
        }
    }

    fn grace_hold(&mut self, id: SessionId, request: RequestId, grace: Span) {
        let until = self.now.after(grace);
        let name = self.sessions.get(&id).and_then(|session| session.holds.get(&request));
        let Some(resource) = name.and_then(|name| self.resources.get_mut(name)) else { return };
        let Some(hold) = &mut resource.hold else { return };
        let before = hold.deadline();
        if let (Some(before), Some(after)) = (before, hold.grace(until)) {
            self.deadlines.replace(before, after, Due::Hold(id, request));
        }
    }
}
