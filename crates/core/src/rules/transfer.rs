//! `Transfer`: an exclusive lock goes to a chosen waiter, past all who came before it, and is free at no
//! moment in between. The holder asks for it, or an operator does.
//!
//! The one who is chosen must wait for this lock alone: to hand over a part of an acquire-all would be a
//! partial hold.

use alloc::vec::Vec;

use crate::model::command::{Call, HoldRef, Mode};
use crate::model::event::{EndReason, Event};
use crate::model::id::{FenceToken, PublicSessionId, RequestId, SessionId};
use crate::model::name::{LockName, Names};
use crate::model::outcome::{Intervened, Outcome, Rejection};
use crate::state::answers::{Question, Reply};
use crate::state::hold::HoldKey;
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn transfer(
        &mut self,
        call: Call,
        meant: HoldRef,
        to: PublicSessionId,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let HoldRef { name, token, .. } = meant.clone();
        let question = Question::Transfer { name: name.clone(), token, to };
        if let Some(outcome) = self.cached_outcome(&call, &question) {
            return outcome;
        }
        let key = self.find_meant(&call, &meant).map(|hold| hold.key());
        let reply = match key {
            Ok(key) => self.hand_over(&name, key, to, events),
            Err(rejection) => Err(rejection),
        };
        match reply {
            Ok(token) => self.answer(&call, question, Reply::Transferred { token }),
            Err(rejection) => {
                let reply = Reply::Rejected(rejection);
                self.refuse(&call, question, Names::One(name), reply, events)
            }
        }
    }

    /// Ends the hold and begins that of the chosen waiter.
    pub(crate) fn hand_over(
        &mut self,
        name: &LockName,
        from: HoldKey,
        to: PublicSessionId,
        events: &mut Vec<Event>,
    ) -> Result<FenceToken, Rejection> {
        let lock = self.lock_map().get(name).ok_or(Rejection::NotHeld)?;
        let hold = lock.hold(from).ok_or(Rejection::NotHeld)?;
        if hold.mode != Mode::Exclusive {
            return Err(Rejection::InvalidMode);
        }
        if self.freezes_in_force().cover(name) {
            return Err(Rejection::Frozen);
        }
        let (id, request) = self.chosen(name, to).ok_or(Rejection::NoSuchWaiter)?;
        if !self.may_be_granted(id, request) {
            return Err(Rejection::NoSuchWaiter);
        }
        let full = |holds: usize| holds >= self.limits().holds_per_session_max;
        let holds = self.session_map().get(&id).map_or(0, |session| session.hold_count());
        // Who hands over to itself gives as much as it takes.
        if !self.has_tokens_for(1) || (full(holds) && id != from.0) {
            return Err(Rejection::TooManyHolds);
        }
        let old = self.take_hold(name, from, events).ok_or(Rejection::NotHeld)?;
        let (session, request_before) = from;
        let reason = EndReason::Transferred;
        events.push(Event::HoldEnded {
            name: name.clone(),
            session,
            request: request_before,
            token: old.token,
            granted_at: old.granted_at,
            reason,
        });
        let actor = self.session_map().get(&id).and_then(|session| session.waits.get(request));
        let actor = actor.map(|wait| (id, wait.actor));
        #[cfg(feature = "planted")]
        let before = self.last_token();
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TransferKeepsToken.is_active() {
            self.set_last_token(old.token.0 - 1);
        }
        self.grant_wait(id, request, events);
        let token = FenceToken(self.last_token());
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TransferKeepsToken.is_active() {
            self.set_last_token(before);
        }
        // Those before whom it stepped wait for it now; it may wait elsewhere for one of them.
        if let Some(actor) = actor {
            let mut steps = self.search_steps();
            self.end_waits_in_cycles(actor, None, &mut steps, events);
        }
        Ok(token)
    }

    /// As an operator wants it.
    pub(crate) fn move_hold(
        &mut self,
        name: &LockName,
        token: FenceToken,
        to: PublicSessionId,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        let lock = self.lock_map().get(name).ok_or(Rejection::NotHeld)?;
        let held = lock.holds().find(|hold| hold.token == token);
        let from = held.ok_or(Rejection::NotHeld)?.key();
        let lost = token;
        let token = self.hand_over(name, from, to, events)?;
        // Unlike a holder that hands over by itself, this one does not know: it has lost the lock.
        let losses_max = self.limits().remembered_losses_max;
        self.change_session(from.0, |session| session.remember_loss(lost, losses_max));
        Ok(Intervened::Transferred { token })
    }

    /// The first of the session's waits for this lock, alone and exclusively, whose time is not up.
    fn chosen(&self, name: &LockName, to: PublicSessionId) -> Option<(SessionId, RequestId)> {
        self.sessions_shown_as(to).find_map(|id| {
            let session = self.session_map().get(&id)?;
            let waits_for_it =
                session.waits.only_for(name).find(|(_, wait)| wait.deadline > self.now());
            Some((id, waits_for_it?.0))
        })
    }
}
