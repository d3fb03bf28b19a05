//! How waits begin and end: the places in the queues, and the index of actors that wait.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::LockTable;
use super::answers::{Question, Reply};
use super::deadlines::Due;
use super::hold::{Actor, Holder};
use super::queue::Waiter;
use super::size;
use super::wait::{Converts, Place, Places, Wait};
use crate::command::{Mode, Terms};
use crate::event::Event;
use crate::id::{RequestId, SessionId};
use crate::name::LockName;
use crate::outcome::{Outcome, Rejection};

impl LockTable {
    /// Takes a place in every one of these queues. A conversion goes to the front: it holds what all
    /// others wait for.
    pub(crate) fn enter_queues<'a>(
        &mut self,
        holder: Holder,
        wanted: impl Iterator<Item = (&'a LockName, Mode)>,
        terms: Terms,
        question: Question,
        converts: Option<Converts>,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let Holder { session, request, actor } = holder;
        let waiter = |mode| Waiter { session, request, actor, mode, policy: terms.policy };
        let mut places = Vec::new();
        let mut position = 1;
        for (name, mode) in wanted {
            let locks = self.resources.len();
            // The text that the table has already, not another copy of it.
            let (name, ticket) = self.resources.change_or_add(name, |name, resource| {
                let queue = resource.queue_mut();
                let ticket = match converts {
                    Some(_) => queue.push_front(waiter(mode)),
                    None => {
                        position = position.max(queue.len() as u64 + 1);
                        queue.push(waiter(mode))
                    }
                };
                (name.clone(), ticket)
            });
            self.count_new_lock(locks, &name);
            self.waiter_count += 1;
            events.push(Event::Queued { name: name.clone(), session, request, actor, mode });
            places.push(Place { name, ticket, mode });
        }
        let deadline = self.now.after(terms.wait);
        let places: Places = places.into_iter().collect();
        let terms = Box::new(terms);
        let queued_at = self.now;
        let wait = Wait { actor, places, queued_at, deadline, terms, question, converts };
        self.note_wait(session, request, wait);
        Outcome::Queued { position }
    }

    /// Puts a wait whose places are taken into the indexes and to its session.
    pub(crate) fn note_wait(&mut self, id: SessionId, request: RequestId, wait: Wait) {
        let actor = (id, wait.actor);
        let waited = self.waits_of(actor).next().is_some();
        let before = if waited { self.place_if_only(actor) } else { None };
        self.deadlines.insert(wait.deadline, Due::Wait(id, request));
        let places = wait.places.as_slice();
        if waited || places.len() > 1 {
            for place in places.iter().chain(&before) {
                self.set_tangled(place, true);
            }
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            self.size += size::of_wait(&wait);
            session.waits.insert(request, wait);
        }
    }

    /// Ends a wait with an answer.
    pub(crate) fn end_wait(
        &mut self,
        session_id: SessionId,
        request: RequestId,
        reply: Reply,
        events: &mut Vec<Event>,
    ) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let Some(wait) = session.waits.remove(request) else { return };
        let outcome = match &reply {
            Reply::TimedOut => Outcome::TimedOut,
            Reply::Cancelled => Outcome::Cancelled,
            Reply::Deadlock(cycle) => Outcome::Deadlock(cycle.clone()),
            Reply::Rejected(rejection) => Outcome::Rejected(*rejection),
            _ => Outcome::Rejected(Rejection::NotHeld),
        };
        let before = session.answers.bytes() + size::of_wait(&wait);
        session.answers.keep(request, wait.question.clone(), reply);
        LockTable::resize(&mut self.size, before, session.answers.bytes());
        self.leave_queues(session_id, request, &wait);
        let names = wait.names();
        self.freed.extend(names.iter().cloned());
        events.push(Event::WaitEnded { names, session: session_id, request, outcome });
    }

    /// Gives up the places of a wait that its session no longer has.
    pub(crate) fn leave_queues(&mut self, id: SessionId, request: RequestId, wait: &Wait) {
        for place in wait.places.as_slice() {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::AcquireAllLeavesAPlace.is_active()
                && wait.places.as_slice().iter().position(|it| it.name == place.name) == Some(1)
            {
                continue;
            }
            let Some(resource) = self.resources.get_mut(&place.name) else { continue };
            if resource.queue_mut().remove(place.ticket).is_some() {
                self.waiter_count -= 1;
            }
            resource.forget_empty_line();
        }
        self.deadlines.remove(wait.deadline, Due::Wait(id, request));
        if let Some(place) = self.place_if_only((id, wait.actor)) {
            self.set_tangled(&place, false);
        }
    }

    /// The requests by which an actor waits.
    pub(crate) fn waits_of(&self, actor: Actor) -> impl Iterator<Item = (RequestId, &Wait)> {
        let (id, actor) = actor;
        self.sessions.get(&id).into_iter().flat_map(move |session| session.waits.of(actor))
    }

    /// Where an actor stands, if that is only one place.
    pub(crate) fn place_if_only(&self, actor: Actor) -> Option<Place> {
        let mut waits = self.waits_of(actor);
        match (waits.next()?.1.places.as_slice(), waits.next()) {
            ([place], None) => Some(place.clone()),
            _ => None,
        }
    }

    /// Who stands in more than one place is marked in each: only such a waiter can be in the way of
    /// others for a reason that its queue does not show.
    fn set_tangled(&mut self, place: &Place, tangled: bool) {
        if let Some(resource) = self.resources.get_mut(&place.name) {
            resource.queue_mut().set_tangled(place.ticket, tangled);
        }
    }
}
