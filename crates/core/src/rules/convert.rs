//! `Convert`: another mode for a hold, without ever giving it up.
//!
//! An exclusive holder becomes a shared one at once, under its token, and the shared waiters at the head of the queue
//! join it. A shared holder becomes exclusive when it is the only holder, under a new token. Until then it waits before
//! all other waiters, which could not be granted anything meanwhile. Of two shared holders that both want to become
//! exclusive, neither can ever be the only one: the second is refused.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::model::access::quota::QuotaKind;
use crate::model::command::{Call, HoldRef, Mode, Policy, Terms};
use crate::model::event::Event;
use crate::model::name::{LockName, Names};
use crate::model::outcome::{CycleLink, Outcome, Rejection};
use crate::model::time::Span;
use crate::rules::deadlock::{Want, Wounds};
use crate::state::answers::{Question, Reply};
use crate::state::hold::{HoldKey, Holder};
use crate::state::queue::Counts;
use crate::state::table::LockTable;
use crate::state::wait::Converts;

impl LockTable {
    pub(crate) fn convert(
        &mut self,
        call: Call,
        meant: HoldRef,
        to: Mode,
        wait: Span,
        policy: Policy,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let question = Question::Convert { name: meant.name.clone(), token: meant.token };
        if let Some(outcome) = self.cached_outcome(&call, &question) {
            return outcome;
        }
        let name = meant.name.clone();
        let lock = self.lock_map().get(&name).ok_or(Rejection::NotHeld);
        let hold = match lock.and_then(|lock| lock.find_meant(call.session, &meant)) {
            Ok(hold) => hold,
            Err(rejection) => {
                let reply = Reply::Rejected(rejection);
                return self.refuse(&call, question, Names::One(name), reply, events);
            }
        };
        let key = hold.key();
        match (hold.mode, to) {
            (Mode::Exclusive, Mode::Shared) => self.downgrade(&call, &name, key, question, events),
            (Mode::Shared, Mode::Exclusive) => {
                let converts = Converts { acquire: key.1, token: hold.token };
                let holder =
                    Holder { session: call.session, request: call.request, actor: hold.actor };
                let terms = Terms { wait, policy, ..Terms::default() };
                self.upgrade_or_wait(&call, holder, &name, converts, terms, events)
            }
            (from, to) if from == to => {
                self.answer(&call, question, Reply::Converted { acquire: key.1 })
            }
            _ => {
                let reply = Reply::Rejected(Rejection::InvalidMode);
                self.refuse(&call, question, Names::One(name), reply, events)
            }
        }
    }

    fn downgrade(
        &mut self,
        call: &Call,
        name: &LockName,
        key: HoldKey,
        question: Question,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let changed = self.change_hold(name, key, |hold| {
            hold.mode = Mode::Shared;
            (hold.token, Box::from(hold.metadata()))
        });
        if let Some((token, metadata)) = changed {
            let ((session, request), name, mode) = (key, name.clone(), Mode::Shared);
            self.note_freed(name.clone());
            events.push(Event::Converted { name, session, request, mode, token, metadata });
        }
        self.answer(call, question, Reply::Converted { acquire: key.1 })
    }

    fn upgrade_or_wait(
        &mut self,
        call: &Call,
        holder: Holder,
        name: &LockName,
        converts: Converts,
        terms: Terms,
        events: &mut Vec<Event>,
    ) -> Outcome {
        self.end_convert_of_ended(name, events);
        let key = (call.session, converts.acquire);
        let question = Question::Convert { name: name.clone(), token: converts.token };
        let Some(lock) = self.lock_map().get(name) else {
            return self.answer(call, question, Reply::Rejected(Rejection::NotHeld));
        };
        let frozen = self.freezes_in_force().cover(name);
        if !self.is_shut(name, lock)
            && self.admits(name, lock, Mode::Exclusive, Counts::NONE, Some(key))
        {
            let outcome = self.upgrade(name, key, call.request, events);
            self.end_other_waits_in_cycles(holder, events);
            return outcome;
        }
        let refused = match () {
            () if terms.wait == Span::ZERO && !frozen => {
                return self.answer(call, question, Reply::Busy);
            }
            () if terms.wait == Span::ZERO => Some(Reply::Rejected(Rejection::Frozen)),
            () if !self.may_wait_more(call.session, 1) => {
                Some(Reply::Rejected(Rejection::TooManyWaits))
            }
            () => self.cycle_of_upgrade(holder, name, converts, terms.policy).map(Reply::Deadlock),
        };
        if let Some(reply) = refused {
            return self.refuse(call, question, Names::One(name.clone()), reply, events);
        }
        for kind in [QuotaKind::Locks, QuotaKind::Waits] {
            if let Err(rejection) = self.room_in_quotas(call.session, [name].into_iter(), kind) {
                return Outcome::Rejected(rejection);
            }
        }
        let wanted = [(name, Mode::Exclusive)].into_iter();
        let outcome = self.enter_queues(holder, wanted, terms, question, Some(converts), events);
        self.end_other_waits_in_cycles(holder, events);
        outcome
    }

    /// Only one hold can wait for its conversion. One whose session has ended gives way.
    fn end_convert_of_ended(&mut self, name: &LockName, events: &mut Vec<Event>) {
        let first = self.lock_map().get(name).and_then(|lock| lock.queue().first());
        if let Some((id, request)) = first.map(|(_, first)| (first.session, first.request))
            && self.ending_of(id).is_some()
            && self.converts(id, request).is_some()
        {
            self.end_wait_with_session(id, request, events);
        }
    }

    /// Shared waiters with waits elsewhere now wait for this actor, too, whether it holds exclusively already or is
    /// ahead of them. It may itself wait for one of them by another request.
    fn end_other_waits_in_cycles(&mut self, holder: Holder, events: &mut Vec<Event>) {
        let mut steps = self.search_steps();
        let actor = (holder.session, holder.actor);
        self.end_waits_in_cycles(actor, Some(holder.request), &mut steps, events);
    }

    /// Two actors that convert the same lock always wait for each other. Other cycles are searched for, unless the
    /// policy is to wait in any case.
    fn cycle_of_upgrade(
        &mut self,
        holder: Holder,
        name: &LockName,
        converts: Converts,
        policy: Policy,
    ) -> Option<Box<[CycleLink]>> {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TwoUpgraders.is_active() {
            return None;
        }
        let first = self.lock_map().get(name)?.queue().first().map(|(_, first)| first);
        if let Some(first) = first
            && self.converts(first.session, first.request).is_some()
        {
            let link = |session, actor| {
                let session = self.session_map().get(&session)?.public;
                Some(CycleLink { session, actor, waits_for: name.clone() })
            };
            let both = [link(holder.session, holder.actor), link(first.session, first.actor)];
            return Some(both.into_iter().flatten().collect());
        }
        if policy == Policy::Wait {
            return None;
        }
        let converts = Some((holder.session, converts.acquire));
        let want = Want { name, mode: Mode::Exclusive, ticket: None, converts };
        self.search_cycle((holder.session, holder.actor), &[want], &Wounds::new())
    }
}
