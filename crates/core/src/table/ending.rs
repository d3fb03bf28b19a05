//! How holds, waits and sessions end. Each leaves every index it stands in.

use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

use super::LockTable;
use super::answers::{Question, Reply};
use super::deadlines::Due;
use super::ended::End;
use super::queue::{Ticket, Waiter};
use super::resource::Hold;
use crate::event::{EndReason, Event};
use crate::id::{RequestId, SessionId};
use crate::name::LockName;
use crate::outcome::{Outcome, Rejection};

/// What is left of a resource when its hold is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// It must be promoted.
    Waiters,
}

impl LockTable {
    /// Takes the hold off a resource, if it is the one that is meant. The session's list of holds is
    /// the caller's affair.
    pub(crate) fn take_hold(
        &mut self,
        name: &LockName,
        is_meant: impl FnOnce(&Hold) -> bool,
    ) -> Option<(Hold, Left)> {
        let Entry::Occupied(mut resource) = self.resources.entry(name.clone()) else { return None };
        if !resource.get().hold.as_ref().is_some_and(is_meant) {
            return None;
        }
        let (hold, left) = if resource.get().queue.is_none() {
            (resource.remove().hold?, Left::Nothing)
        } else {
            (resource.get_mut().hold.take()?, Left::Waiters)
        };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::HoldDeadlineLeftBehind.is_active() {
            return Some((hold, left));
        }
        if let Some(deadline) = hold.deadline() {
            self.deadlines.remove(deadline, Due::Hold(hold.session, hold.request));
        }
        Some((hold, left))
    }

    /// Ends a wait with an answer. The place in the queue is gone; nobody moves up but by position.
    pub(crate) fn end_wait(
        &mut self,
        session_id: SessionId,
        request: RequestId,
        reply: Reply,
        events: &mut Vec<Event>,
    ) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let Some(wait) = session.waits.remove(&request) else { return };
        let question = Question::Acquire { name: wait.name.clone() };
        session.answers.keep(request, question, reply);
        self.leave_queue(&wait.name, wait.ticket);
        let outcome = match reply {
            Reply::TimedOut => Outcome::TimedOut,
            Reply::Cancelled => Outcome::Cancelled,
            _ => Outcome::Rejected(Rejection::TooManyHolds),
        };
        events.push(Event::WaitEnded { name: wait.name, session: session_id, request, outcome });
    }

    fn leave_queue(&mut self, name: &LockName, ticket: Ticket) -> Option<Waiter> {
        let resource = self.resources.get_mut(name)?;
        let queue = resource.queue.as_mut()?;
        let waiter = queue.remove(ticket)?;
        if queue.is_empty() {
            resource.queue = None;
        }
        self.waiter_count -= 1;
        let due = Due::Wait(waiter.claim.session, waiter.claim.request);
        self.deadlines.remove(waiter.deadline, due);
        Some(waiter)
    }

    /// Ends a session whose time is up.
    pub(crate) fn expire_session(
        &mut self,
        id: SessionId,
        freed: &mut Vec<LockName>,
        events: &mut Vec<Event>,
    ) {
        if let Some(session) = self.sessions.get(&id) {
            let reason = session.expiry_reason();
            self.end_session(id, reason, freed, events);
        }
    }

    /// Ends a session with all its waits and holds. Resources that somebody waits for are added to
    /// `freed`: the caller promotes them when everything that ends with this command has ended, so
    /// that nothing is granted to the dying.
    pub(crate) fn end_session(
        &mut self,
        id: SessionId,
        reason: EndReason,
        freed: &mut Vec<LockName>,
        events: &mut Vec<Event>,
    ) {
        let Some(session) = self.sessions.remove(&id) else { return };
        #[cfg(feature = "planted")]
        let session = session.with_parts_left_behind();
        self.deadlines.remove(session.deadline, Due::Session(id));
        self.public_ids.remove(&(session.public, id));
        let end = if reason == EndReason::Closed { End::Closed } else { End::Expired };
        self.ended.remember(id, end, self.limits.ended_sessions_max);
        for (request, wait) in session.waits {
            self.leave_queue(&wait.name, wait.ticket);
            let outcome = Outcome::Rejected(Rejection::UnknownSession);
            events.push(Event::WaitEnded { name: wait.name, session: id, request, outcome });
        }
        for (request, name) in session.holds {
            let is_its = |hold: &Hold| hold.session == id && hold.request == request;
            let Some((hold, left)) = self.take_hold(&name, is_its) else { continue };
            if left == Left::Waiters {
                freed.push(name.clone());
            }
            let token = hold.token;
            events.push(match reason {
                EndReason::Closed => Event::Released { name, session: id, token },
                _ => {
                    let reason = EndReason::SessionExpired;
                    Event::HoldEnded { name, session: id, request, token, reason }
                }
            });
        }
        events.push(Event::SessionEnded { session: id, public: session.public, reason });
    }
}
