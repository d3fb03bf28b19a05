//! Grants, and how a resource that became free goes to the next in line.
//!
//! One end of a hold wakes one waiter. A waiter that cannot be granted any more (its deadline has
//! passed, its session is due) is passed over and leaves the queue, so the dead never stall it.

use alloc::vec::Vec;

use super::LockTable;
use super::answers::{Question, Reply};
use super::deadlines::Due;
use super::resource::{Begun, Hold};
use crate::event::Event;
use crate::id::FenceToken;
use crate::name::LockName;
use crate::outcome::{Grant, Outcome};

/// What is to be done with the first in line.
enum Next {
    Grant,
    EndWait(Reply),
    EndSession,
}

impl LockTable {
    /// Gives a freed resource to the next in line, outside of a tick.
    pub(crate) fn promote(&mut self, name: &LockName, events: &mut Vec<Event>) {
        self.promote_or(name, None, events);
    }

    /// Gives freed resources to the next in line, at the end of a tick. A due session that comes up
    /// is ended rather than granted a lock that the next tick would take away; what it held is freed
    /// as well.
    pub(crate) fn promote_all_in_tick(&mut self, freed: Vec<LockName>, events: &mut Vec<Event>) {
        let mut to_do = freed;
        while !to_do.is_empty() {
            for name in core::mem::take(&mut to_do) {
                self.promote_or(&name, Some(&mut to_do), events);
            }
        }
    }

    fn promote_or(
        &mut self,
        name: &LockName,
        mut freed_by_due_sessions: Option<&mut Vec<LockName>>,
        events: &mut Vec<Event>,
    ) {
        loop {
            let Some(resource) = self.resources.get(name) else { return };
            if resource.hold.is_some() {
                return;
            }
            let Some((_, waiter)) = resource.queue.as_ref().and_then(|queue| queue.first()) else {
                #[cfg(feature = "planted")]
                if crate::planted::Bug::FreeNameKept.is_active() {
                    return;
                }
                self.resources.remove(name);
                return;
            };
            let (session_id, request) = (waiter.claim.session, waiter.claim.request);
            #[cfg(feature = "planted")]
            if crate::planted::Bug::GrantToEndedSession.is_active()
                && !self.sessions.contains_key(&session_id)
            {
                return self.grant_first(name, events);
            }
            let next = match self.sessions.get(&session_id) {
                _ if waiter.deadline <= self.now => Next::EndWait(Reply::TimedOut),
                Some(session)
                    if freed_by_due_sessions.is_some() && session.deadline <= self.now =>
                {
                    Next::EndSession
                }
                Some(session) if session.holds.len() >= self.limits.holds_per_session_max => {
                    Next::EndWait(Reply::TooManyHolds)
                }
                _ if self.last_token >= FenceToken::MAX.0 => Next::EndWait(Reply::TooManyHolds),
                _ => Next::Grant,
            };
            match (next, &mut freed_by_due_sessions) {
                (Next::EndSession, Some(freed)) => self.expire_session(session_id, freed, events),
                (Next::EndWait(reply), _) => self.end_wait(session_id, request, reply, events),
                _ => {
                    #[cfg(feature = "planted")]
                    if crate::planted::Bug::PromotesTwo.is_active() {
                        self.grant_first(name, events);
                    }
                    return self.grant_first(name, events);
                }
            }
            #[cfg(feature = "planted")]
            if crate::planted::Bug::PassedOverWaiterStalls.is_active() {
                return;
            }
        }
    }

    fn grant_first(&mut self, name: &LockName, events: &mut Vec<Event>) {
        let Some(resource) = self.resources.get_mut(name) else { return };
        let Some(queue) = &mut resource.queue else { return };
        let Some((ticket, waiter)) = queue.first() else { return };
        let (session_id, request) = (waiter.claim.session, waiter.claim.request);
        let Some(token) = next_token(&mut self.last_token) else { return };
        let Some(waiter) = queue.remove(ticket) else { return };
        if queue.is_empty() {
            resource.queue = None;
        }
        let hold = Hold::new(waiter.claim, token, self.now);
        let begun = hold.begun();
        resource.hold = Some(hold);
        self.waiter_count -= 1;
        self.deadlines.remove(waiter.deadline, Due::Wait(session_id, request));
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session.waits.remove(&request);
        }
        let grant = self.note_grant(name.clone(), begun, events);
        events.push(Event::WaitEnded {
            name: name.clone(),
            session: session_id,
            request,
            outcome: Outcome::Granted(grant),
        });
    }

    /// Records a hold that has just begun wherever it must be known, and tells of it.
    pub(crate) fn note_grant(
        &mut self,
        name: LockName,
        begun: Begun,
        events: &mut Vec<Event>,
    ) -> Grant {
        let Begun { session: session_id, request, actor, token, deadline } = begun;
        if let Some(deadline) = deadline {
            self.deadlines.insert(deadline, Due::Hold(session_id, request));
        }
        let mut session_deadline = self.now;
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session_deadline = session.deadline;
            session.holds.insert(request, name.clone());
            let question = Question::Acquire { name: name.clone() };
            session.answers.keep(request, question, Reply::Granted);
        }
        events.push(Event::Granted {
            name: name.clone(),
            session: session_id,
            request,
            actor,
            token,
        });
        Grant { name, token, deadline, session_deadline }
    }
}

/// The token of the next grant. There are enough for a million grants a second over thousands of
/// centuries; should they ever run out, nothing is granted any more.
pub(crate) fn next_token(last_token: &mut u64) -> Option<FenceToken> {
    if *last_token >= FenceToken::MAX.0 {
        return None;
    }
    *last_token += 1;
    Some(FenceToken(*last_token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Acquire, Call, Command, Mode, OpenSession, Owner};
    use crate::id::{ActorId, LogIndex, PublicSessionId, RequestId, SessionId};
    use crate::limits::Limits;
    use crate::outcome::Rejection;
    use crate::time::{LogicalTime, Span};

    fn acquire(request: u64) -> Command {
        Command::Acquire(Acquire {
            call: Call {
                session: SessionId(1),
                request: RequestId(request),
                acked_through: RequestId(0),
            },
            actor: ActorId(0),
            name: LockName::new("wallet").unwrap(),
            mode: Mode::Exclusive,
            wait: Span::from_secs(10),
            ttl: None,
            max_hold: None,
            metadata: [].into(),
        })
    }

    #[test]
    fn no_token_is_ever_higher_than_a_signed_column_can_hold() {
        let mut table = LockTable::new(Limits::default());
        table.last_token = FenceToken::MAX.0 - 1;
        let mut events = Vec::new();
        let mut apply = |table: &mut LockTable, command| {
            table.apply(LogIndex(1), LogicalTime::ZERO, command, &mut events)
        };
        let open = OpenSession {
            session: SessionId(1),
            public: PublicSessionId(1),
            stream: None,
            ttl: Span::from_secs(60),
            linger: Span::ZERO,
            owner: Owner::default(),
        };
        apply(&mut table, Command::OpenSession(open));
        assert!(matches!(apply(&mut table, acquire(1)), Outcome::Granted(_)));
        for request in [2, 3] {
            assert!(matches!(apply(&mut table, acquire(request)), Outcome::Queued { .. }));
        }
        let call =
            Call { session: SessionId(1), request: RequestId(4), acked_through: RequestId(0) };
        let name = LockName::new("wallet").unwrap();
        apply(&mut table, Command::Release { call, name, token: FenceToken::MAX });
        // Nobody is left standing before a lock that will never be granted.
        assert_eq!((table.lock_count(), table.waiter_count()), (0, 0));
        let refused = Outcome::Rejected(Rejection::TooManyHolds);
        assert_eq!(apply(&mut table, acquire(5)), refused);
        assert_eq!(table.last_token(), FenceToken::MAX.0);
        assert_eq!(table.check(), Ok(()));
    }
}
