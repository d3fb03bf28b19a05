//! `Acquire` and `AcquireAll`: take locks, or a place in their queues.
//!
//! An acquire and an acquire-all take the same path. Only an acquire of one name can re-enter. An acquire-all of
//! several locks is refused with `AlreadyHeld` if its actor holds one of them; one of a single lock is treated as an
//! acquire.
//!
//! A request is granted when nothing blocks any of its locks. It then gets all of them at once, so a part of it is
//! never held. While the request is first in the queue of one of its locks, no later request that conflicts with it is
//! granted that lock, although the request itself holds nothing and has no token yet.
//!
//! Locks are not re-entrant by default (`Terms::reentrant`). An actor is a thread of work within a session. If an actor
//! acquires a lock that it holds already, the request is not re-entrant, and it conflicts with that hold:
//! - with a wait of zero it gets `Busy`;
//! - with a wait and the policy `Wait` it waits, at most until its deadline;
//! - with a wait and any other policy it gets `Deadlock` (`Died` under `WaitDie` if the hold has an earlier `since`;
//!   queued if the search for the cycle reached its bound).
//!
//! A second shared hold, or another permit, is granted or queued as for any other request.
//!
//! The policies `WaitDie` and `WoundWait` are those of Rosenkrantz, Stearns and Lewis (1978). An actor's age is the
//! `since` of its request, or else the time at which its session was opened; the lower time is the older actor.
//! Wait-die: a younger actor does not wait for an older one; it is refused (`Died`) and retries with its original
//! `since`. Wound-wait: an older actor takes the preemptible holds of younger ones, if its request may wait (`wait`
//! above zero).
//!
//! Blocks with `feature = "planted"` are deliberate bugs for the tests. A build without the feature has none.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::model::access::quota::QuotaKind;
use crate::model::command::{Acquire, AcquireAll, Call, Member, Mode, Policy, Terms};
use crate::model::event::{EndReason, Event};
use crate::model::id::{ActorId, SessionId};
use crate::model::name::Names;
use crate::model::outcome::{Outcome, Rejection};
use crate::model::time::Span;
use crate::rules::deadlock::{Want, Wounds};
use crate::state::answers::{Question, Reply};
use crate::state::hold::{Hold, Holder};
use crate::state::table::LockTable;

/// A request on its way through the table.
struct Request<'a> {
    call: Call,
    actor: ActorId,
    /// The names of the acquire, each with its mode.
    members: &'a [Member],
    /// What was asked, to recognise a retry.
    question: Question,
}

impl LockTable {
    pub(crate) fn acquire(&mut self, acquire: Acquire, events: &mut Vec<Event>) -> Outcome {
        let Acquire { call, actor, name, mode, terms } = acquire;
        let question = Question::Acquire { name: name.clone() };
        let members = [Member { name, mode }];
        self.take(Request { call, actor, members: &members, question }, terms, events)
    }

    pub(crate) fn acquire_all(&mut self, acquire: AcquireAll, events: &mut Vec<Event>) -> Outcome {
        let AcquireAll { call, actor, mut members, terms } = acquire;
        members.sort_by(|one, other| one.name.cmp(&other.name));
        let question = Question::acquire_all(members.iter().map(|member| &member.name));
        self.take(Request { call, actor, members: &members, question }, terms, events)
    }

    fn take(&mut self, request: Request<'_>, mut terms: Terms, events: &mut Vec<Event>) -> Outcome {
        let Request { call, actor, members, question } = request;
        if let Some(outcome) = self.cached_outcome(&call, &question) {
            return outcome;
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::OwnHoldSatisfiesAcquire.is_active()
            && let [member] = members
            && let Some(session) = self.session_map().get(&call.session)
            && let Some((own, _)) = session.holds().find(|(_, held)| **held == member.name)
            && let [grant] = &*self.grants_of(call.session, own)
        {
            return Outcome::Granted(grant.clone());
        }
        if let Some(outcome) = self.reenter(&call, actor, members, &question, &terms, events) {
            return outcome;
        }
        let members = match self.check_and_complete_members(&call, actor, members) {
            Ok(members) => members,
            Err(rejection) => {
                let reply = Reply::Rejected(rejection);
                return self.refuse(&call, question, names(members), reply, events);
            }
        };
        if let Err(rejection) =
            self.room_for_acquire(call.session, &members, &terms.metadata, &question)
        {
            return Outcome::Rejected(rejection);
        }
        let holder = Holder { session: call.session, request: call.request, actor };
        if terms.since.is_some() {
            terms.since = Some(self.since(call.session, terms.since));
        }
        if members.iter().all(|member| self.admits_newcomer(&member.name, member.mode)) {
            let wanted = members.iter().map(|member| (&member.name, member.mode));
            return self.grant(holder, question, wanted, &terms, events);
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::AcquireAllInPart.is_active() && members.len() > 1 {
            let free = members.iter().filter(|it| self.admits_newcomer(&it.name, it.mode));
            let free: Vec<Member> = free.cloned().collect();
            if !free.is_empty() {
                let wanted = free.iter().map(|member| (&member.name, member.mode));
                return self.grant(holder, question, wanted, &terms, events);
            }
        }
        let wounds = self.wounds(holder, &members, &terms);
        // The queue limits also apply to a request that may be granted by taking holds away: the
        // freed locks go to earlier waiters first (below), so the request may have to wait all the
        // same.
        if let Some(reply) = self.reason_not_to_wait(holder, &members, &terms, &wounds) {
            return match reply {
                Reply::Busy => self.answer(&call, question, reply),
                reply => self.refuse(&call, question, names(&members), reply, events),
            };
        }
        let wanted = members.iter().map(|member| &member.name);
        if let Err(rejection) = self.room_in_quotas(call.session, wanted, QuotaKind::Waits) {
            return Outcome::Rejected(rejection);
        }
        if !wounds.is_empty() {
            self.wound(wounds, events);
            // The freed locks go to earlier waiters first, as always.
            self.promote_freed(false, events);
            let is_free = |member: &Member| self.admits_newcomer(&member.name, member.mode);
            if members.iter().all(is_free) {
                // Some of the freed locks may have gone to an earlier request of this session, so
                // the session's limit is checked again.
                if !self.may_hold_more(call.session, members.len()) {
                    let reply = Reply::Rejected(Rejection::TooManyHolds);
                    return self.refuse(&call, question, names(&members), reply, events);
                }
                let wanted = members.iter().map(|member| (&member.name, member.mode));
                return self.grant(holder, question, wanted, &terms, events);
            }
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::WaitWithoutEnd.is_active() {
            terms.wait = Span::from_secs(86_400);
        } else if crate::planted::Bug::WaitEndsEarly.is_active() {
            terms.wait = Span::from_ms(terms.wait.as_ms() / 2);
        }
        let wanted = members.iter().map(|member| (&member.name, member.mode));
        self.enter_queues(holder, wanted, terms, question, None, events)
    }

    /// Re-entry: the actor holds the lock already, and its hold is counted once more. A shared holder does not become
    /// exclusive by it, and permits cannot be re-entered.
    fn reenter(
        &mut self,
        call: &Call,
        actor: ActorId,
        members: &[Member],
        question: &Question,
        terms: &Terms,
        events: &mut Vec<Event>,
    ) -> Option<Outcome> {
        let [member] = members else { return None };
        if !terms.reentrant {
            return None;
        }
        let hold = self.lock_map().get(&member.name)?.hold_of((call.session, actor))?;
        let key = hold.key();
        let reply = match (hold.mode, member.mode) {
            (Mode::Permit { .. }, _) | (Mode::Shared, Mode::Exclusive) => {
                Reply::Rejected(Rejection::InvalidMode)
            }
            _ if hold.reentries() >= self.limits().reentries_max => {
                Reply::Rejected(Rejection::TooManyReentries)
            }
            _ => {
                self.change_hold(&member.name, key, Hold::reenter)?;
                Reply::Reentered { acquire: key.1 }
            }
        };
        Some(match reply {
            Reply::Reentered { .. } => self.answer(call, question.clone(), reply),
            reply => self.refuse(call, question.clone(), names(members), reply, events),
        })
    }

    /// Refuses the request if the session has too many holds, if an acquire-all names a lock that the actor holds, or
    /// if the number of permits is wrong. Fills in the number of permits. Other modes are unchanged.
    fn check_and_complete_members<'a>(
        &self,
        call: &Call,
        actor: ActorId,
        members: &'a [Member],
    ) -> Result<Cow<'a, [Member]>, Rejection> {
        if !self.may_hold_more(call.session, members.len()) {
            return Err(Rejection::TooManyHolds);
        }
        let holds = |member: &Member| {
            let lock = self.lock_map().get(&member.name);
            lock.is_some_and(|lock| lock.hold_of((call.session, actor)).is_some())
        };
        if members.len() > 1 && members.iter().any(holds) {
            return Err(Rejection::AlreadyHeld);
        }
        if !members.iter().any(|member| matches!(member.mode, Mode::Permit { .. })) {
            return Ok(Cow::Borrowed(members));
        }
        let settled = members.iter().map(|member| {
            let mode = self.settle_permits(&member.name, member.mode)?;
            Ok(Member { name: member.name.clone(), mode })
        });
        settled.collect::<Result<Vec<Member>, Rejection>>().map(Cow::Owned)
    }

    /// Whether the session may have `count` more holds, and the table can still issue as many
    /// tokens. (Tokens have a maximum. A table that has reached it also refuses with
    /// `TooManyHolds`.)
    fn may_hold_more(&self, session: SessionId, count: usize) -> bool {
        let holds = self.session_map().get(&session).map_or(0, |session| session.hold_count());
        holds + count <= self.limits().holds_per_session_max && self.has_tokens_for(count)
    }

    /// Whether the session may have `places` more places in queues.
    pub(super) fn may_wait_more(&self, session: SessionId, places: usize) -> bool {
        let session = self.session_map().get(&session);
        let taken = session.map_or(0, |session| session.waits.place_count());
        taken + places <= self.limits().waits_per_session_max
    }

    /// The preemptible holds of younger actors that the request would take away. They are taken only if the request is
    /// then granted or queued, not if it is refused. Empty unless the policy is `WoundWait`. Empty also if the request
    /// only tries once, if one of its locks is frozen, closed by a lock delay or owned by another group, or if a lock
    /// has more holders than may be checked.
    fn wounds(&mut self, holder: Holder, members: &[Member], terms: &Terms) -> Wounds {
        if terms.policy != Policy::WoundWait || terms.wait == Span::ZERO {
            return Wounds::new();
        }
        let is_shut = |member: &Member| {
            let frozen = || self.freezes_in_force().cover(&member.name);
            let lock = self.lock_map().get(&member.name);
            lock.map_or_else(frozen, |lock| self.is_shut(&member.name, lock))
        };
        if members.iter().any(is_shut) {
            return Wounds::new();
        }
        let age = self.age((holder.session, holder.actor), terms.since);
        let mut wounds = Wounds::new();
        for member in members {
            let Some(keys) = self.holds_to_wound(age, &member.name, member.mode) else {
                return Wounds::new();
            };
            wounds.extend(keys.into_iter().map(|key| (member.name.clone(), key)));
        }
        wounds
    }

    fn wound(&mut self, wounds: Wounds, events: &mut Vec<Event>) {
        for (name, key) in wounds {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::WoundedKeepsHold.is_active()
                && let Some(lock) = self.lock_map().get(&name)
                && let Some(hold) = lock.hold(key)
            {
                let ((session, request), token, granted_at) = (key, hold.token, hold.granted_at);
                let reason = EndReason::Wounded;
                events.push(Event::HoldEnded { name, session, request, token, granted_at, reason });
                continue;
            }
            self.end_hold(&name, key, EndReason::Wounded, events);
        }
    }

    /// Why the request must not be queued.
    fn reason_not_to_wait(
        &mut self,
        holder: Holder,
        members: &[Member],
        terms: &Terms,
        wounds: &Wounds,
    ) -> Option<Reply> {
        if terms.wait == Span::ZERO {
            let frozen = members.iter().any(|member| self.freezes_in_force().cover(&member.name));
            return Some(if frozen { Reply::Rejected(Rejection::Frozen) } else { Reply::Busy });
        }
        if !self.may_wait_more(holder.session, members.len()) {
            return Some(Reply::Rejected(Rejection::TooManyWaits));
        }
        let queue_is_full = |member: &Member| {
            let lock = self.lock_map().get(&member.name);
            let waiters = lock.map_or(0, |lock| lock.waiter_count());
            waiters >= self.limits().waiters_per_lock_max
        };
        if members.iter().any(queue_is_full) {
            return Some(Reply::Rejected(Rejection::QueueFull));
        }
        if terms.policy == Policy::Wait {
            return None;
        }
        let actor = (holder.session, holder.actor);
        let age = self.age(actor, terms.since);
        let dies = terms.policy == Policy::WaitDie;
        #[cfg(feature = "planted")]
        let dies = dies && !crate::planted::Bug::YoungerWaits.is_active();
        if dies && members.iter().any(|it| self.waits_for_older(age, &it.name, it.mode)) {
            return Some(Reply::Died { since: self.since(holder.session, terms.since) });
        }
        let wants: Vec<Want<'_>> = members.iter().map(want).collect();
        self.search_cycle(actor, &wants, wounds).map(Reply::Deadlock)
    }
}

fn want(member: &Member) -> Want<'_> {
    Want { name: &member.name, mode: member.mode, ticket: None, converts: None }
}

fn names(members: &[Member]) -> Names {
    members.iter().map(|member| member.name.clone()).collect()
}
