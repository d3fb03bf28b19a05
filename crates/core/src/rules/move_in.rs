//! Puts parts of what was in slots into the table: of slots that come, or that come back.
//!
//! One log entry puts in one part. Until all parts are in, the group does not own the slots, so nothing is granted there.
//! A session of which a part has holds or waits becomes a guest. If the guest has ended since an earlier part, or if a
//! change of the policy has ended the sessions of its principal, its holds and waits end as well.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::model::event::Event;
use crate::model::id::{RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::slot_move::{GroupNumber, MoveEnd};
use crate::model::time::{LogicalTime, Span};
use crate::state::answers::Answer;
use crate::state::ended_sessions::End;
use crate::state::hold::Hold;
use crate::state::moves::{Arrival, Stage};
use crate::state::queue::Waiter;
use crate::state::session::Session;
use crate::state::snapshot::part::{MovedHold, Part};
use crate::state::table::LockTable;
use crate::state::wait::{QueuePlace, Wait};

/// Counts times of another group from the present time of this one.
#[derive(Clone, Copy)]
struct TimeShift {
    from: LogicalTime,
    to: LogicalTime,
}

impl TimeShift {
    fn apply(self, time: LogicalTime) -> LogicalTime {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::MovedTimesNotShifted.is_active() {
            return time;
        }
        if time >= self.from {
            self.to.after(time.since(self.from))
        } else {
            let ago = self.from.since(time);
            LogicalTime::from_ms(self.to.as_ms().saturating_sub(ago.as_ms()))
        }
    }
}

impl LockTable {
    /// Puts the next part in, if there is one.
    pub(super) fn put_in(&mut self, events: &mut Vec<Event>) {
        while self.move_steps() == self.limits().move_steps_max
            && let Some(bytes) = self.next_part(events)
        {
            // A part costs as much as the entry that made it.
            self.set_move_steps(0);
            let part = Part::decode(&bytes);
            debug_assert!(part.is_ok(), "parts are read when they are adopted");
            if let Ok(part) = part {
                self.note_guests(&part);
                self.install(part, events);
            }
        }
        // Nothing may be left.
        if self.move_steps() == 0 {
            self.finish_arrivals(events);
        }
    }

    /// Takes the next part. If none is left, the slots are the group's own.
    fn next_part(&mut self, events: &mut Vec<Event>) -> Option<Box<[u8]>> {
        self.finish_arrivals(events);
        self.change_moves(|moves| {
            let (parts, progress) = moves.progress_mut()?;
            let part = parts.get(progress.done)?.clone();
            progress.done += 1;
            Some(part)
        })
    }

    fn note_guests(&mut self, part: &Part) {
        let now = self.now();
        self.change_moves(|moves| {
            if let Some((_, progress)) = moves.progress_mut() {
                for guest in part.sessions.keys() {
                    progress.guests.entry(*guest).or_insert(now);
                }
            }
        });
    }

    /// When all parts are in, the times of the guests are counted as if they had stood still until now: their clients
    /// could not find them before. One entry does this for some of them. Returns whether it is done for all.
    fn settle_guests(&mut self) -> bool {
        let now = self.now();
        let taken = self.change_moves(|moves| {
            let (parts, progress) = moves.progress_mut()?;
            let is_complete = progress.done == parts.len();
            is_complete.then(|| core::mem::take(&mut progress.guests))
        });
        let Some(mut guests) = taken else { return false };
        if guests.values().all(|came_at| *came_at == now) {
            return true;
        }
        while self.move_steps() > 0
            && let Some((guest, came_at)) = guests.pop_first()
        {
            let holds = self.settle_guest(guest, now.since(came_at));
            self.set_move_steps(self.move_steps().saturating_sub(1 + holds));
        }
        let is_done = guests.is_empty();
        self.change_moves(|moves| {
            if let Some((_, progress)) = moves.progress_mut() {
                progress.guests = guests;
            }
        });
        is_done
    }

    /// Returns how many holds it has.
    fn settle_guest(&mut self, id: SessionId, stood_still: Span) -> usize {
        let now = self.now();
        self.change_lease(id, |session| {
            let later = session.deadline.after(stood_still).min(now.after(session.ttl));
            session.deadline = session.deadline.max(later);
        });
        let Some(session) = self.live_session(id) else { return 0 };
        let holds: Vec<_> = session.holds().map(|(by, name)| (by, name.clone())).collect();
        for (request, name) in &holds {
            self.change_hold(name, (id, *request), |hold| hold.stand_still(stood_still, now));
        }
        holds.len()
    }

    fn finish_arrivals(&mut self, events: &mut Vec<Event>) {
        if !self.settle_guests() {
            return;
        }
        let come =
            self.moves().incoming.iter().find_map(|(source, incoming)| match &incoming.arrival {
                Arrival::Installing { epoch, slots, parts, progress }
                    if progress.done == parts.len() =>
                {
                    Some((*source, *epoch, slots.clone()))
                }
                _ => None,
            });
        if let Some((source, epoch, slots)) = come {
            self.end_arrival(source);
            self.own_more(epoch, &slots, events);
        }
        let back = self.moves().outgoing().and_then(|outgoing| match outgoing.stage {
            Stage::Returning { epoch, ref progress } if progress.done == outgoing.parts.len() => {
                Some((epoch, outgoing.slots.clone()))
            }
            _ => None,
        });
        if let Some((epoch, slots)) = back {
            self.change_moves(|moves| moves.outgoing = None);
            self.own_more(epoch, &slots, events);
        }
    }

    fn end_arrival(&mut self, source: GroupNumber) {
        self.change_moves(|moves| {
            if let Some(incoming) = moves.incoming.get_mut(&source) {
                incoming.arrival = Arrival::Ended(MoveEnd::Committed);
            }
        });
    }

    fn install(&mut self, part: Part, events: &mut Vec<Event>) {
        let shift = TimeShift { from: part.at, to: self.now() };
        for (id, session) in part.sessions {
            self.install_session(id, session, part.generation, shift, events);
        }
        for (name, until) in part.closed {
            self.close_lock(&name, shift.apply(until));
        }
        for moved in part.holds {
            self.install_hold(moved, shift, events);
        }
        for (id, request, wait) in part.waits {
            self.install_wait(id, request, wait, shift, events);
        }
        for (name, limit) in part.permits {
            self.store_permits(&name, Some(limit));
        }
    }

    fn install_session(
        &mut self,
        id: SessionId,
        mut session: Session,
        generation: u64,
        shift: TimeShift,
        events: &mut Vec<Event>,
    ) {
        session.opened_at = shift.apply(session.opened_at);
        // Its client has to find it here, as after a change of the leader: that gets it its whole TTL, once since the
        // client was last heard of.
        let progress = self.moves().progress();
        let came_at = progress.and_then(|it| it.guests.get(&id)).copied().unwrap_or(self.now());
        let left = TimeShift { to: came_at, ..shift }.apply(session.deadline);
        let whole = came_at.after(session.ttl);
        session.deadline = if session.graced { left } else { left.max(whole) };
        session.graced = true;
        if self.is_guest_of_same_move(id, &session) {
            let (deadline, acked) = (session.deadline, session.answers.acked_through());
            let below = session.below_own_tokens;
            self.change_lease(id, |known| {
                known.deadline = known.deadline.max(deadline);
                known.below_own_tokens = known.below_own_tokens.min(below);
            });
            self.change_answers(id, |answers| answers.acknowledge(acked));
            return;
        }
        // The id is in use or was, or the session would have ended here.
        let is_known = self.session_map().contains_key(&id);
        if is_known || self.ended_sessions().get(id).is_some() {
            return;
        }
        let (policy, rules) = (self.access(), self.rules());
        let identity = session.identity.as_deref();
        if identity.is_some_and(|it| policy.has_ended_since(generation, rules, it)) {
            return self.remember_end(id, End::Expired);
        }
        events.push(Event::SessionOpened {
            session: id,
            public: session.public,
            owner: Box::new(session.owner.clone()),
            principal: session.identity.as_ref().map(|identity| identity.principal.clone()),
        });
        self.add_session(id, session);
    }

    fn is_guest_of_same_move(&self, id: SessionId, moved: &Session) -> bool {
        self.live_session(id).is_some_and(|known| known.guest_of == moved.guest_of)
    }

    /// Whether the holds and waits of a part are put in: its guest is there.
    fn has_guest(&self, id: SessionId) -> bool {
        self.live_session(id).is_some_and(|session| session.guest_of.is_some())
    }

    fn install_hold(&mut self, moved: MovedHold, shift: TimeShift, events: &mut Vec<Event>) {
        let MovedHold { name, mut hold, answers } = moved;
        let id = hold.session;
        if !self.has_guest(id) {
            return self.lose_moved_hold(&name, &hold);
        }
        hold.shift_times(|time| shift.apply(time));
        if let Some(ttl) = hold.bounds().ttl {
            // As the session, so that its client has time to find it here.
            hold.grace(self.now().after(ttl));
        }
        let (request, actor, mode, token) = (hold.request, hold.actor, hold.mode, hold.token);
        let convert = hold.converted_by();
        let name = self.add_hold(&name, hold);
        self.change_session(id, |session| {
            if let Some(convert) = convert {
                session.note_conversion(convert, request, None);
            }
            for (asked, answer) in answers {
                let Answer { question, reply } = answer.into_answer(&name, request);
                session.answers.keep(asked, question, reply);
            }
        });
        events.push(Event::HoldMovedIn { name, session: id, request, actor, mode, token });
    }

    /// The guest has ended before its hold arrived. As if the hold had been here, its lock is closed for the lock delay,
    /// unless the client has closed the guest and so released the hold.
    fn lose_moved_hold(&mut self, name: &LockName, hold: &Hold) {
        let is_released = self.ended_sessions().get(hold.session) == Some(End::Closed);
        if let Some(delay) = hold.lock_delay().filter(|_| !is_released) {
            self.close_lock(name, self.now().after(delay));
        }
    }

    fn install_wait(
        &mut self,
        id: SessionId,
        request: RequestId,
        mut wait: Wait,
        shift: TimeShift,
        events: &mut Vec<Event>,
    ) {
        if !self.has_guest(id) {
            return;
        }
        wait.queued_at = shift.apply(wait.queued_at);
        wait.deadline = shift.apply(wait.deadline);
        wait.terms.since = wait.terms.since.map(|since| shift.apply(since));
        let (actor, policy) = (wait.actor, wait.terms.policy);
        let places = wait.places.as_slice().iter().map(|place| {
            let mode = place.mode;
            let waiter = Waiter { session: id, request, actor, mode, policy };
            let (name, ticket) = self.enqueue_at(&place.name, waiter, place.ticket);
            events.push(Event::Queued { name: name.clone(), session: id, request, actor, mode });
            QueuePlace { name, ticket, mode }
        });
        let places = places.collect();
        self.add_wait(id, request, Wait { places, ..wait });
    }
}
