//! Takes what is in slots that leave out of the table, and writes it into parts.
//!
//! A lock is taken out hold by hold, then waiter by waiter. What is still in the table is as in every slot that the group
//! does not own: it is released and renewed, its times run, and nothing is granted. What has been taken out is nowhere
//! in the table: its times stand still, and requests about it are refused with `wrong_group`.

use alloc::vec::Vec;
use core::ops::Bound;

use crate::model::command::OpenSession;
use crate::model::event::{EndReason, Event};
use crate::model::id::{RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::{Outcome, Rejection};
use crate::model::slot::Slot;
use crate::model::slot_move::MoveId;
use crate::state::answers::{Answers, Question, Reply};
use crate::state::hold::HoldKey;
use crate::state::moves::Stage;
use crate::state::session::Session;
use crate::state::snapshot::part::{MovedAnswer, MovedHold, Part};
use crate::state::table::LockTable;

/// A hold or a wait takes so many steps of the budget of an entry. To pass by a lock of another slot takes one.
const ITEM_STEPS: usize = 8;
/// A session may keep thousands of answers, which are looked through for those of a hold.
const ANSWERS_PER_STEP: usize = 16;
/// What an answer takes in a part, at most.
const ANSWER_BYTES: usize = 24;

/// A part that is being made, and the steps that this entry has left.
struct Taking {
    id: MoveId,
    part: Part,
    steps: usize,
    bytes_max: usize,
}

impl Taking {
    fn is_full(&self) -> bool {
        self.steps == 0 || self.part.bytes >= self.bytes_max
    }

    fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }
}

impl LockTable {
    /// Makes the next part, if slots leave and something is left in them.
    pub(super) fn take_out(&mut self, events: &mut Vec<Event>) {
        let outgoing = self.moves().outgoing().filter(|outgoing| !outgoing.is_returning());
        let Some(outgoing) = outgoing else { return };
        let (id, mut stage) = (outgoing.id, outgoing.stage.clone());
        let part = Part::new(self.now(), self.access().generation());
        let bytes_max = self.limits().move_part_bytes;
        let mut taking = Taking { id, part, steps: self.move_steps(), bytes_max };
        while !taking.is_full() {
            stage = match stage {
                Stage::TakingLocks { passed } => self.take_locks(passed, &mut taking, events),
                Stage::TakingPermits { passed } => self.take_permits(passed, &mut taking),
                Stage::Complete { .. } | Stage::Returning { .. } => break,
            };
        }
        self.set_move_steps(taking.steps);
        let travellers = taking.part.sessions.values().map(|session| session.public);
        let part = (!taking.part.is_empty()).then(|| taking.part.encode().into_boxed_slice());
        self.change_moves(|moves| {
            if let Some(outgoing) = &mut moves.outgoing {
                outgoing.parts.extend(part);
                outgoing.travellers.extend(travellers);
                outgoing.stage = stage;
            }
        });
    }

    fn leaves(&self, name: &LockName) -> bool {
        let outgoing = self.moves().outgoing();
        outgoing.is_some_and(|outgoing| outgoing.slots.contains(Slot::of(name)))
    }

    fn take_locks(
        &mut self,
        mut passed: Option<LockName>,
        taking: &mut Taking,
        events: &mut Vec<Event>,
    ) -> Stage {
        while !taking.is_full() {
            let start = match &passed {
                Some(passed) => Bound::Excluded(passed.as_str()),
                None => Bound::Unbounded,
            };
            let mut looked_at = 0;
            let steps = taking.steps;
            let mut last_foreign = None;
            let next = self.lock_map().from(start).take(steps).find(|(name, _)| {
                looked_at += 1;
                let leaves = self.leaves(name);
                if !leaves {
                    last_foreign = Some(*name);
                }
                leaves
            });
            let next = next.map(|(name, _)| name.clone());
            // No entry passes by a foreign lock again.
            passed = last_foreign.cloned().or(passed);
            // What is taken out of a lock is counted by itself. So each entry gets on, however few steps it has.
            taking.spend(looked_at - usize::from(next.is_some()));
            match next {
                // Later entries go on with it.
                Some(name) if !self.take_lock(&name, taking, events) => break,
                Some(name) => passed = Some(name),
                None if looked_at < steps => return Stage::TakingPermits { passed: None },
                None => {}
            }
        }
        Stage::TakingLocks { passed }
    }

    /// Returns whether nothing of the lock is left.
    fn take_lock(&mut self, name: &LockName, taking: &mut Taking, events: &mut Vec<Event>) -> bool {
        loop {
            let Some(lock) = self.lock_map().get(name) else { return true };
            let hold = lock.holds().next().map(|hold| hold.key());
            let waiter = lock.queue().first().map(|(_, waiter)| (waiter.session, waiter.request));
            let closed = lock.closed_until();
            if taking.is_full() && !lock.is_unused() {
                return false;
            }
            match (hold, waiter, closed) {
                (Some(key), _, _) => self.take_hold_out(name, key, taking, events),
                (None, Some((id, request)), _) => self.take_wait_out(id, request, taking, events),
                (None, None, Some(until)) => {
                    self.open_lock(name);
                    taking.spend(ITEM_STEPS);
                    taking.part.bytes += name.len() + 16;
                    taking.part.closed.push((name.clone(), until));
                }
                (None, None, None) => {
                    self.forget_lock(name);
                    return true;
                }
            }
        }
    }

    fn take_hold_out(
        &mut self,
        name: &LockName,
        key: HoldKey,
        taking: &mut Taking,
        events: &mut Vec<Event>,
    ) {
        taking.spend(ITEM_STEPS);
        if self.ending_of(key.0).is_some() {
            // Its session has ended, and a later entry would end it.
            return self.end_hold(name, key, EndReason::SessionExpired, events);
        }
        // The wait to convert the hold is nothing without it.
        let lock = self.lock_map().get(name);
        let first = lock.and_then(|lock| lock.queue().first());
        let first = first.map(|(_, first)| (first.session, first.request));
        let conversion = first.filter(|(id, request)| {
            let converts = self.converts(*id, *request);
            *id == key.0 && converts.is_some_and(|converts| converts.acquire == key.1)
        });
        self.note_guest(key.0, taking);
        let Some(mut hold) = self.remove_hold(name, key) else { return };
        self.note_departure(key.0, key.1, taking.id.epoch);
        let answers = self.take_answers_of(name, key, taking);
        let ((session, request), token, granted_at) = (key, hold.token, hold.granted_at);
        hold.session = taking.id.guest(session);
        let bytes = name.len() + hold.metadata().len() + 96;
        taking.part.bytes += bytes + answers.len() * ANSWER_BYTES;
        taking.part.holds.push(MovedHold { name: name.clone(), hold, answers });
        let (name, reason) = (name.clone(), EndReason::Moved);
        events.push(Event::HoldEnded { name, session, request, token, granted_at, reason });
        if let Some((id, request)) = conversion {
            self.take_wait_out(id, request, taking, events);
        }
    }

    /// Takes the answers along that are made from a hold. If an acquire-all has other holds left, its answer goes along
    /// and stays. Otherwise it is kept here that the request has left: a late copy of it can come when the slot is back.
    fn take_answers_of(
        &mut self,
        name: &LockName,
        (id, acquire): HoldKey,
        taking: &mut Taking,
    ) -> Vec<(RequestId, MovedAnswer)> {
        let Some(session) = self.session_map().get(&id) else { return Vec::new() };
        taking.spend(session.answers.len() / ANSWERS_PER_STEP);
        let is_last = session.held_by(acquire).is_empty();
        let epoch = taking.id.epoch;
        let (mut along, mut left, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for (request, answer) in session.answers.iter() {
            if let Some(moved) = MovedAnswer::of(answer, request, name, acquire) {
                along.push((request, moved));
                if is_last || request != acquire {
                    left.push((request, answer.question.clone()));
                }
            }
            // A retry of the cancellation has to be sent to where the hold is.
            if let (Question::Cancel { target }, Reply::CancelTooLate) =
                (&answer.question, &answer.reply)
                && is_last
                && *target == acquire
            {
                gone.push(request);
            }
        }
        self.change_answers(id, |answers| {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::DepartedRequestsForgotten.is_active() {
                left.drain(..).for_each(|(request, _)| answers.forget(request));
            }
            for (request, question) in left {
                answers.keep(request, question, Reply::Moved { epoch });
            }
            gone.into_iter().for_each(|request| answers.forget(request));
        });
        along
    }

    fn take_wait_out(
        &mut self,
        id: SessionId,
        request: RequestId,
        taking: &mut Taking,
        events: &mut Vec<Event>,
    ) {
        if self.ending_of(id).is_some() {
            taking.spend(ITEM_STEPS);
            return self.end_wait_with_session(id, request, events);
        }
        let Some(wait) = self.remove_wait(id, request) else { return };
        self.note_departure(id, request, taking.id.epoch);
        let places = wait.places.as_slice();
        taking.spend(ITEM_STEPS * places.len());
        let names = wait.names();
        let epoch = self.ownership().epoch();
        let leaves_whole = names.iter().all(|name| self.leaves(name));
        let (rejection, reply) = if leaves_whole {
            (Rejection::WrongGroup { epoch }, Reply::Moved { epoch: taking.id.epoch })
        } else {
            // It was ahead of others in the queues that stay.
            names.iter().for_each(|name| self.note_freed(name.clone()));
            (Rejection::SeveralGroups { epoch }, Reply::Divided { epoch })
        };
        let question = wait.question.clone();
        self.change_answers(id, |answers| answers.keep(request, question, reply));
        if leaves_whole {
            let places: usize = names.iter().map(|name| name.len() + 16).sum();
            taking.part.bytes += places + wait.terms.metadata.len() + 128;
            #[cfg(feature = "planted")]
            if crate::planted::Bug::WaitersNotMoved.is_active() {
                let outcome = Outcome::Rejected(rejection);
                events.push(Event::WaitEnded { names, session: id, request, outcome });
                return;
            }
            self.note_guest(id, taking);
            names.iter().for_each(|name| self.forget_if_unused(name));
            taking.part.waits.push((taking.id.guest(id), request, *wait));
        }
        let outcome = Outcome::Rejected(rejection);
        events.push(Event::WaitEnded { names, session: id, request, outcome });
    }

    fn forget_if_unused(&mut self, name: &LockName) {
        if self.lock_map().get(name).is_some_and(|lock| lock.is_unused()) {
            self.forget_lock(name);
        }
    }

    /// The part says for whom it has a hold or a wait of the session. What is left of the session stays as it is.
    fn note_guest(&mut self, id: SessionId, taking: &mut Taking) {
        let guest = taking.id.guest(id);
        if taking.part.sessions.contains_key(&guest) {
            return;
        }
        let Some(session) = self.session_map().get(&id) else { return };
        let open = OpenSession {
            session: guest,
            public: session.public,
            stream: None,
            ttl: session.ttl,
            linger: session.linger,
            owner: session.owner.clone(),
            identity: session.identity.clone(),
        };
        let mut moved = Session::new(open, session.opened_at, session.below_own_tokens);
        moved.deadline = session.deadline;
        moved.graced = session.graced;
        moved.guest_of = Some(taking.id);
        moved.answers = Answers::restored(session.answers.acked_through());
        taking.part.bytes += moved.size_bytes() as usize;
        taking.part.sessions.insert(guest, moved);
    }

    fn take_permits(&mut self, mut passed: Option<LockName>, taking: &mut Taking) -> Stage {
        loop {
            if taking.is_full() {
                return Stage::TakingPermits { passed };
            }
            let start = match &passed {
                Some(passed) => Bound::Excluded(passed),
                None => Bound::Unbounded,
            };
            let next = self.stored_permits().range::<LockName, _>((start, Bound::Unbounded)).next();
            let next = next.map(|(name, limit)| (name.clone(), *limit));
            let Some((name, limit)) = next else {
                return Stage::Complete { last_token: self.last_token() };
            };
            taking.spend(1);
            if self.leaves(&name) {
                taking.spend(ITEM_STEPS);
                taking.part.bytes += name.len() + 8;
                self.store_permits(&name, None);
                taking.part.permits.push((name.clone(), limit));
            }
            passed = Some(name);
        }
    }
}
