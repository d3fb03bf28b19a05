//! The queue places of waits: entering queues, leaving them, and which wait each place belongs to.

use alloc::boxed::Box;

use crate::model::id::{RequestId, SessionId};
use crate::model::name::LockName;
use crate::state::deadlines::Due;
use crate::state::hold::Actor;
use crate::state::queue::{Ticket, Waiter};
use crate::state::table::LockTable;
use crate::state::usage::Used;
use crate::state::wait::{QueuePlace, Wait};

impl LockTable {
    /// Takes a place in a queue. Returns the table's copy of the name, the place, and the number of waiters ahead.
    pub(crate) fn enqueue(
        &mut self,
        name: &LockName,
        waiter: Waiter,
        is_first: bool,
    ) -> (LockName, Ticket, usize) {
        self.waiter_count += 1;
        let place = Used::PLACE;
        #[cfg(feature = "planted")]
        let place = if crate::planted::Bug::QuotaWithoutWaits.is_active() {
            Used::default()
        } else {
            place
        };
        self.count_taken(waiter.session, name, place);
        self.change_or_add_lock(name, |name, lock| {
            let queue = lock.queue_mut();
            let ahead = queue.len();
            let ticket = if is_first { queue.push_front(waiter) } else { queue.push(waiter) };
            (name.clone(), ticket, ahead)
        })
    }

    /// Takes the place that it had in the queue of another table, or the last one if that is taken.
    pub(crate) fn enqueue_at(
        &mut self,
        name: &LockName,
        waiter: Waiter,
        ticket: Ticket,
    ) -> (LockName, Ticket) {
        self.waiter_count += 1;
        self.count_taken(waiter.session, name, Used::PLACE);
        self.change_or_add_lock(name, |name, lock| {
            let queue = lock.queue_mut();
            if queue.get(ticket).is_some() {
                return (name.clone(), queue.push(waiter));
            }
            queue.insert(ticket, waiter);
            (name.clone(), ticket)
        })
    }

    /// Adds a wait whose queue places are taken already.
    pub(crate) fn add_wait(&mut self, id: SessionId, request: RequestId, wait: Wait) {
        let actor = (id, wait.actor);
        let waited = self.all_waits_of(actor).next().is_some();
        let before = if waited { self.place_if_only(actor) } else { None };
        self.deadlines.insert(wait.deadline, Due::Wait(id, request));
        let places = wait.places.as_slice();
        if waited || places.len() > 1 {
            for place in places.iter().chain(&before) {
                self.set_in_several_queues(place, true);
            }
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            self.size += wait.size_bytes();
            session.waits.insert(request, wait);
        }
    }

    /// Removes a wait from its session and from its queues.
    pub(crate) fn remove_wait(&mut self, id: SessionId, request: RequestId) -> Option<Box<Wait>> {
        let wait = self.sessions.get_mut(&id)?.waits.remove(request)?;
        self.size = self.size.saturating_sub(wait.size_bytes());
        self.leave_queues(id, request, &wait);
        Some(wait)
    }

    /// Removes the places of a wait that its session no longer has.
    pub(crate) fn leave_queues(&mut self, id: SessionId, request: RequestId, wait: &Wait) {
        for place in wait.places.as_slice() {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::AcquireAllLeavesAPlace.is_active()
                && wait.places.as_slice().iter().position(|it| it.name == place.name) == Some(1)
            {
                continue;
            }
            self.leave_queue(&place.name, place.ticket);
        }
        self.deadlines.remove(wait.deadline, Due::Wait(id, request));
        if let Some(place) = self.place_if_only((id, wait.actor)) {
            self.set_in_several_queues(&place, false);
        }
    }

    pub(crate) fn leave_queue(&mut self, name: &LockName, ticket: Ticket) -> Option<Waiter> {
        let lock = self.locks.get_mut(name)?;
        let waiter = lock.queue_mut().remove(ticket);
        self.waiter_count -= usize::from(waiter.is_some());
        lock.drop_empty_queue();
        if let Some(waiter) = &waiter {
            self.count_given_back(waiter.session, name, Used::PLACE);
        }
        waiter
    }

    /// Marks a waiter whose actor has several queue places. Only such a waiter can block others for a reason that its
    /// queue does not show.
    fn set_in_several_queues(&mut self, place: &QueuePlace, is_in_several: bool) {
        if let Some(lock) = self.locks.get_mut(&place.name) {
            lock.queue_mut().set_in_several_queues(place.ticket, is_in_several);
        }
    }

    /// Puts a waiter at a place that no rule would give it.
    #[cfg(test)]
    pub(crate) fn move_waiter(
        &mut self,
        name: &LockName,
        from: Ticket,
        to: Ticket,
    ) -> Option<Ticket> {
        let queue = self.locks.get_mut(name)?.queue_mut();
        let waiter = queue.remove(from)?;
        queue.insert(to, waiter);
        Some(to)
    }

    /// The waits of an actor that may be granted. One whose session has ended waits for nothing.
    pub(crate) fn waits_of(&self, actor: Actor) -> impl Iterator<Item = (RequestId, &Wait)> {
        let (id, actor) = actor;
        self.live_session(id).into_iter().flat_map(move |session| session.waits.of(actor))
    }

    /// The waits of an actor that stand in queues.
    pub(crate) fn all_waits_of(&self, actor: Actor) -> impl Iterator<Item = (RequestId, &Wait)> {
        let (id, actor) = actor;
        self.sessions.get(&id).into_iter().flat_map(move |session| session.waits.of(actor))
    }

    /// The place of an actor, if it has only one.
    pub(crate) fn place_if_only(&self, actor: Actor) -> Option<QueuePlace> {
        let mut waits = self.all_waits_of(actor);
        match (waits.next()?.1.places.as_slice(), waits.next()) {
            ([place], None) => Some(place.clone()),
            _ => None,
        }
    }
}
