//! `Acquire`: take a resource, or a place in its queue.
//!
//! A resource that is not in the table is free, and nobody waits for it: whoever could be granted was
//! granted when it became free. So there is nobody to overtake. An acquire by a session that holds
//! the resource already is a stranger like any other: it waits, or is told `Busy`.

use alloc::boxed::Box;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

use super::Acquire;
use crate::event::Event;
use crate::outcome::Outcome;
use crate::table::answers::{Question, Reply};
use crate::table::deadlines::Due;
use crate::table::queue::Waiter;
use crate::table::resource::{Claim, Hold, Resource};
use crate::table::session::Wait;
use crate::table::{LockTable, next_token};
use crate::time::Span;

impl LockTable {
    pub(crate) fn acquire(&mut self, acquire: Acquire, events: &mut Vec<Event>) -> Outcome {
        let Acquire { call, actor, name, mode, wait, ttl, max_hold, metadata } = acquire;
        let question = Question::Acquire { name: name.clone() };
        if let Some(outcome) = self.recall(&call, &question) {
            return outcome;
        }
        let session = match self.session_mut(call.session) {
            Ok(session) => session,
            Err(rejection) => return Outcome::Rejected(rejection),
        };
        let (holds, waits) = (session.holds.len(), session.waits.len());
        #[cfg(feature = "planted")]
        if crate::planted::Bug::OwnHoldSatisfiesAcquire.is_active()
            && let Some((own, _)) = session.holds.iter().find(|(_, held)| **held == name)
            && let own = *own
            && let Some(grant) = self.grant_of(&call, own)
        {
            return Outcome::Granted(grant);
        }
        if holds >= self.limits.holds_per_session_max {
            return self.answer(&call, question, Reply::TooManyHolds);
        }
        let session_id = call.session;
        let request = call.request;
        let claim = Claim { session: session_id, request, actor, mode, ttl, max_hold, metadata };

        match self.resources.entry(name) {
            Entry::Vacant(free) => {
                let Some(token) = next_token(&mut self.last_token) else {
                    return self.answer(&call, question, Reply::TooManyHolds);
                };
                let name = free.key().clone();
                let hold = Hold::new(claim, token, self.now);
                let begun = hold.begun();
                free.insert(Resource::held(hold));
                Outcome::Granted(self.note_grant(name, begun, events))
            }
            Entry::Occupied(_) if wait == Span::ZERO => self.answer(&call, question, Reply::Busy),
            Entry::Occupied(_) if waits >= self.limits.waits_per_session_max => {
                self.answer(&call, question, Reply::TooManyWaits)
            }
            Entry::Occupied(taken)
                if taken.get().waiter_count() >= self.limits.waiters_per_resource_max =>
            {
                self.answer(&call, question, Reply::QueueFull)
            }
            Entry::Occupied(mut taken) => {
                // The text that the table has already, not another copy of it.
                let name = taken.key().clone();
                #[cfg(feature = "planted")]
                let wait = match wait {
                    _ if crate::planted::Bug::WaitWithoutEnd.is_active() => Span::from_secs(86_400),
                    wait if crate::planted::Bug::WaitEndsEarly.is_active() => {
                        Span::from_ms(wait.as_ms() / 2)
                    }
                    wait => wait,
                };
                let deadline = self.now.after(wait);
                let queue = taken.get_mut().queue.get_or_insert_with(Box::default);
                let ticket = queue.push(Waiter { claim, queued_at: self.now, deadline });
                let position = queue.len() as u64;
                self.waiter_count += 1;
                self.deadlines.insert(deadline, Due::Wait(session_id, request));
                if let Some(session) = self.sessions.get_mut(&session_id) {
                    session.waits.insert(request, Wait { name: name.clone(), ticket });
                }
                events.push(Event::Queued { name, session: session_id, request, actor });
                Outcome::Queued { position }
            }
        }
    }
}
