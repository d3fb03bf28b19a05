//! Promotion: granting a lock that has become free to the waiters at the head of its queue.
//!
//! Code that frees a lock only notes the name of the lock. Waiters are granted after the command has done everything
//! else, so a command never grants a lock to a waiter whose wait or session it ends itself. The end of one hold wakes
//! one waiter, or the run of readers at the head of the queue. A waiter that cannot be granted any more (its deadline
//! has passed, its session is due or has ended, the policy forbids it) is removed from the queue, so it never blocks
//! the waiters behind it. (A waiter that is *passed by* keeps its place.)

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::model::command::{Mode, Terms};
use crate::model::event::Event;
use crate::model::id::{RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::{Grant, Outcome, Rejection};
use crate::model::rules_version::RulesVersion;
use crate::model::time::LogicalTime;
use crate::state::answers::{Question, Reply};
use crate::state::deferred::Promotion;
use crate::state::hold::{Hold, HoldKey, Holder};
use crate::state::lock::Lock;
use crate::state::queue::{Counts, Ticket};
use crate::state::table::LockTable;
use crate::state::wait::{Converts, Wait};

/// What to do with a waiter that nothing blocks in this queue.
enum Next {
    Grant,
    /// It also waits in another queue, and is blocked there. It keeps its place, and the walk goes
    /// on behind it.
    PassBy,
    EndWait(Reply),
    /// Its session is due: end the session, and with it this wait.
    EndSession,
    /// Its session has ended already: end this wait.
    EndWithSession,
}

/// Why a queue is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PromotionOrigin {
    /// The present command has freed the lock, or may have unblocked a waiter.
    Fresh,
    /// An earlier log entry did not finish the walk, and it is now the first of the deferred walks.
    Deferred,
}

/// A name with waiters costs this many steps of the budget: granting it takes about as long as
/// looking at so many names without waiters.
const AWAITED_NAME_STEPS: usize = 8;

impl LockTable {
    /// Grants the locks that have become free to the next waiters. If a tick finds that the session
    /// of such a waiter is due, it ends the session instead of granting it a lock that the next
    /// tick would take away. That also frees the locks that the session held.
    ///
    /// One command ends at most `expiries_per_tick_max` due sessions and waits, waits of ended
    /// sessions included. If more of them are at the head of a queue, the walk stops there; the
    /// next entries end them, and continue the walk. If the deadline of such a session is extended
    /// first, [`resume_promotions_of`](LockTable::resume_promotions_of) continues the walk.
    pub(crate) fn promote_freed(&mut self, in_tick: bool, events: &mut Vec<Event>) {
        while self.has_freed() {
            for name in self.take_freed() {
                self.promote(&name, in_tick, events);
            }
        }
    }

    /// Continues the deferred walks, until this log entry has used up its budget of steps (see
    /// `state/deferred.rs`).
    pub(crate) fn continue_deferred(&mut self, in_tick: bool, events: &mut Vec<Event>) {
        while !self.deferred().is_empty()
            && self.promotion_steps() > 0
            && let Some(next) = self.take_deferred()
        {
            self.spend_promotion_steps(1);
            match next {
                Promotion::Queue { name, passed } => {
                    self.promote_after(&name, passed, PromotionOrigin::Deferred, in_tick, events);
                }
                Promotion::Prefix { prefix, passed } => self.sweep(prefix, passed),
            }
            self.promote_freed(in_tick, events);
        }
    }

    /// Notes as freed the locks under a prefix that have waiters, after a thaw or after the group
    /// gained slots. Stops when this log entry has used up its budget, and defers the rest.
    fn sweep(&mut self, prefix: Box<str>, mut passed: Option<LockName>) {
        let mut steps = self.promotion_steps();
        let start = match &passed {
            Some(passed) => Bound::Excluded(passed.as_str()),
            None => Bound::Included(&*prefix),
        };
        let under = self.lock_map().from(start).take_while(|(name, _)| name.starts_with(&*prefix));
        let mut awaited = Vec::new();
        let mut last = None;
        let mut is_finished = true;
        for (name, lock) in under {
            if steps == 0 {
                is_finished = false;
                break;
            }
            let is_awaited = lock.waiter_count() > 0;
            steps = steps.saturating_sub(if is_awaited { AWAITED_NAME_STEPS } else { 1 });
            if is_awaited {
                awaited.push(name.clone());
            }
            last = Some(name);
        }
        if !is_finished {
            passed = last.cloned().or(passed);
            self.defer(Promotion::Prefix { prefix, passed });
        }
        self.spend_promotion_steps(self.promotion_steps() - steps);
        awaited.into_iter().for_each(|name| self.note_freed(name));
    }

    /// Whether this log entry may examine a waiter that waits in `places` queues: that costs so
    /// many steps of the entry's budget. If not, the walk through the rest of the queue is
    /// deferred.
    fn may_examine(
        &mut self,
        places: usize,
        name: &LockName,
        passed: Option<Ticket>,
        origin: PromotionOrigin,
    ) -> bool {
        if places <= 1 || self.rules() < RulesVersion::THREE {
            return true;
        }
        // A new walk goes behind the walks that are already deferred.
        let is_next = origin == PromotionOrigin::Deferred || self.deferred().is_empty();
        if is_next && self.promotion_steps() > 0 {
            self.spend_promotion_steps(places);
            return true;
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::DeferredPromotionLost.is_active() {
            return false;
        }
        self.defer(Promotion::Queue { name: name.clone(), passed });
        false
    }

    /// The deadline of a session had passed, and was then extended. The session may be first in
    /// queues where a tick stopped its walk because of it.
    pub(crate) fn resume_promotions_of(&mut self, id: SessionId) {
        let Some(session) = self.session_map().get(&id) else { return };
        let places = session.waits.iter().flat_map(|(_, wait)| wait.places.as_slice());
        let names: Vec<LockName> = places.map(|place| place.name.clone()).collect();
        names.into_iter().for_each(|name| self.note_freed(name));
    }

    fn promote(&mut self, name: &LockName, in_tick: bool, events: &mut Vec<Event>) {
        self.promote_after(name, None, PromotionOrigin::Fresh, in_tick, events);
    }

    /// Walks the queue from behind the place `passed`, and grants what can be granted. An earlier
    /// part of the walk skipped the waiters up to and including that place.
    fn promote_after(
        &mut self,
        name: &LockName,
        mut passed: Option<Ticket>,
        origin: PromotionOrigin,
        in_tick: bool,
        events: &mut Vec<Event>,
    ) {
        let Some(mut ahead) = self.counts_through(name, passed) else { return };
        loop {
            let Some(lock) = self.lock_map().get(name) else { return };
            if lock.is_unused() {
                self.forget_lock(name);
                return;
            }
            let frozen = self.freezes_in_force().cover(name);
            #[cfg(feature = "planted")]
            let frozen = frozen && !crate::planted::Bug::FreezeLetsPromotionPass.is_active();
            if lock.closed_until().is_some() || frozen || !self.ownership().covers(name) {
                return;
            }
            let Some((ticket, waiter)) = lock.queue().after(passed) else { return };
            let (id, request, mode) = (waiter.session, waiter.request, waiter.mode);
            #[cfg(feature = "planted")]
            if crate::planted::Bug::GrantToEndedSession.is_active()
                && lock.holder_count() == 0
                && !self.session_map().contains_key(&id)
            {
                return self.grant_to_the_dead(name, ticket, events);
            }
            let converts = self.converts(id, request).map(|converts| (id, converts.acquire));
            if !self.admits(name, lock, mode, ahead, converts) {
                return;
            }
            if !self.may_examine(self.places_of(id, request), name, passed, origin) {
                return;
            }
            let next = match self.next_for(id, request, name, in_tick) {
                Next::Grant if !self.may_be_granted(id, request) => {
                    Next::EndWait(Reply::Rejected(Rejection::PermissionDenied))
                }
                next => next,
            };
            let is_due = matches!(
                next,
                Next::EndWait(Reply::TimedOut) | Next::EndSession | Next::EndWithSession
            );
            if is_due && !self.may_end_one_more() {
                return;
            }
            match next {
                Next::Grant => {
                    self.grant_wait(id, request, events);
                    #[cfg(feature = "planted")]
                    if crate::planted::Bug::PromotesTwo.is_active()
                        && let Some(lock) = self.lock_map().get(name)
                        && let Some((_, waiter)) = lock.queue().first()
                        && self.converts(waiter.session, waiter.request).is_none()
                    {
                        let (id, request) = (waiter.session, waiter.request);
                        self.grant_wait(id, request, events);
                    }
                }
                Next::PassBy => {
                    passed = Some(ticket);
                    *ahead.of(mode) += 1;
                }
                Next::EndWait(reply) => self.end_wait(id, request, reply, events),
                Next::EndSession => self.expire_session(id, events),
                Next::EndWithSession => self.end_wait_with_session(id, request, events),
            }
            #[cfg(feature = "planted")]
            if crate::planted::Bug::PassedOverWaiterStalls.is_active() {
                return;
            }
        }
    }

    /// The number of waiters up to and including this place, under the mode of the next waiter. None if one of them
    /// blocks that next waiter (then no later one can be granted the lock either), or if there is none.
    fn counts_through(&self, name: &LockName, passed: Option<Ticket>) -> Option<Counts> {
        let mut ahead = Counts::NONE;
        let Some(passed) = passed else { return Some(ahead) };
        let queue = self.lock_map().get(name)?.queue();
        let (next, waiter) = queue.after(Some(passed))?;
        if !queue.all_before_are_like(waiter.mode, Some(next)) {
            return None;
        }
        *ahead.of(waiter.mode) = (queue.position(next) - 1) as usize;
        Some(ahead)
    }

    /// In how many queues a request waits.
    fn places_of(&self, id: SessionId, request: RequestId) -> usize {
        let wait = self.session_map().get(&id).and_then(|session| session.waits.get(request));
        wait.map_or(0, |wait| wait.places.as_slice().len())
    }

    pub(crate) fn converts(&self, id: SessionId, request: RequestId) -> Option<Converts> {
        self.session_map().get(&id)?.waits.get(request)?.converts
    }

    fn next_for(&self, id: SessionId, request: RequestId, here: &LockName, in_tick: bool) -> Next {
        let Some(session) = self.session_map().get(&id) else { return Next::PassBy };
        let Some(wait) = session.waits.get(request) else { return Next::PassBy };
        let places = wait.places.as_slice();
        let elsewhere = places.iter().filter(|place| place.name != *here);
        if session.ending.is_some() {
            Next::EndWithSession
        } else if wait.deadline <= self.now() {
            Next::EndWait(Reply::TimedOut)
        } else if in_tick && session.deadline <= self.now() {
            Next::EndSession
        } else if wait.converts.is_none()
            && (session.hold_count() + places.len() > self.limits().holds_per_session_max
                || !self.has_tokens_for(places.len()))
        {
            Next::EndWait(Reply::Rejected(Rejection::TooManyHolds))
        } else if elsewhere.into_iter().all(|place| self.admits_waiter(&place.name, place.ticket)) {
            Next::Grant
        } else {
            Next::PassBy
        }
    }

    /// Grants a wait that nothing blocks in any of its queues.
    pub(crate) fn grant_wait(
        &mut self,
        id: SessionId,
        request: RequestId,
        events: &mut Vec<Event>,
    ) {
        let Some(wait) = self.remove_wait(id, request) else { return };
        let names = wait.names();
        let outcome = match wait.converts {
            Some(converts) => {
                let name = names.as_slice().first();
                name.map_or(Outcome::Rejected(Rejection::NotHeld), |name| {
                    self.upgrade(name, (id, converts.acquire), request, events)
                })
            }
            None => self.grant_places(id, request, &wait, events),
        };
        events.push(Event::WaitEnded { names, session: id, request, outcome });
    }

    fn grant_places(
        &mut self,
        session: SessionId,
        request: RequestId,
        wait: &Wait,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let holder = Holder { session, request, actor: wait.actor };
        let question = wait.question.clone();
        let wanted = wait.places.as_slice().iter().map(|place| (&place.name, place.mode));
        self.grant(holder, question, wanted, &wait.terms, events)
    }

    /// Grants all of these, in one step. The caller has made sure that nothing blocks them.
    pub(crate) fn grant<'a>(
        &mut self,
        holder: Holder,
        question: Question,
        wanted: impl Iterator<Item = (&'a LockName, Mode)>,
        terms: &Terms,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let all = matches!(question, Question::AcquireAll { .. });
        let mut grants = Vec::new();
        let mut only = None;
        for (name, mode) in wanted {
            let grant = self.begin_hold(holder, name, mode, terms, events);
            if all {
                grants.extend(grant);
            } else {
                only = grant;
            }
        }
        self.change_answers(holder.session, |answers| {
            answers.keep(holder.request, question, Reply::Granted);
        });
        match only {
            Some(grant) => Outcome::Granted(grant),
            None if all => Outcome::GrantedAll(grants.into_boxed_slice()),
            None => Outcome::Rejected(Rejection::TooManyHolds),
        }
    }

    fn begin_hold(
        &mut self,
        holder: Holder,
        name: &LockName,
        mode: Mode,
        terms: &Terms,
        events: &mut Vec<Event>,
    ) -> Option<Grant> {
        let Holder { session: id, request, actor } = holder;
        let run = match mode {
            Mode::Shared => self.lock_map().get(name).and_then(Lock::shared_token),
            Mode::Exclusive | Mode::Permit { .. } => None,
        };
        let token = match run {
            Some(token) => token,
            None => self.next_token()?,
        };
        let hold = Hold::new(holder, mode, token, terms, self.now());
        let deadline = hold.deadline();
        let name = self.add_hold(name, hold);
        let session_deadline = self.deadline_of(id);
        events.push(Event::Granted {
            name: name.clone(),
            session: id,
            request,
            actor,
            mode,
            token,
            metadata: terms.metadata.clone(),
        });
        Some(Grant { name, acquire: request, token, mode, deadline, session_deadline })
    }

    /// A reader that is alone becomes the writer, under a new token.
    pub(crate) fn upgrade(
        &mut self,
        name: &LockName,
        key: HoldKey,
        convert: RequestId,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let Some(token) = self.next_token() else {
            return Outcome::Rejected(Rejection::TooManyHolds);
        };
        #[cfg(feature = "planted")]
        let token = self.token_of_upgrade(name, key, token);
        let upgraded = self.change_hold(name, key, |hold| {
            let before = core::mem::replace(&mut hold.token, token);
            hold.mode = Mode::Exclusive;
            (before, hold.note_conversion(convert), hold.deadline(), Box::from(hold.metadata()))
        });
        let Some((before, converted_before, deadline, metadata)) = upgraded else {
            return Outcome::Rejected(Rejection::NotHeld);
        };
        let question = Question::Convert { name: name.clone(), token: before };
        self.change_session(key.0, |session| {
            session.answers.keep(convert, question, Reply::Converted { acquire: key.1 });
            session.note_conversion(convert, key.1, converted_before);
        });
        let session_deadline = self.deadline_of(key.0);
        let mode = Mode::Exclusive;
        let (session, request) = key;
        let name = name.clone();
        let acquire = request;
        events.push(Event::Converted {
            name: name.clone(),
            session,
            request,
            mode,
            token,
            metadata,
        });
        Outcome::Granted(Grant { name, acquire, token, mode, deadline, session_deadline })
    }

    /// When a session ends unless it is heard of again.
    fn deadline_of(&self, id: SessionId) -> LogicalTime {
        self.session_map().get(&id).map_or(self.now(), |session| session.deadline)
    }

    /// The token that the reader had, if the bug is planted.
    #[cfg(feature = "planted")]
    fn token_of_upgrade(
        &mut self,
        name: &LockName,
        key: HoldKey,
        new: crate::model::id::FenceToken,
    ) -> crate::model::id::FenceToken {
        let hold = self.lock_map().get(name).and_then(|lock| lock.hold(key));
        match hold.filter(|_| crate::planted::Bug::UpgradeKeepsToken.is_active()) {
            Some(hold) => hold.token,
            None => new,
        }
    }

    /// Planted bug: grants the lock to a waiter without checking that its session still exists.
    #[cfg(feature = "planted")]
    fn grant_to_the_dead(&mut self, name: &LockName, ticket: Ticket, events: &mut Vec<Event>) {
        let Some(waiter) = self.leave_queue(name, ticket) else { return };
        let holder =
            Holder { session: waiter.session, request: waiter.request, actor: waiter.actor };
        self.begin_hold(holder, name, waiter.mode, &Terms::default(), events);
    }
}
