//! `Intervene`: an operator steps in. Every intervention is told as an event, with who and why, before
//! what comes of it.
//!
//! Operators have no session, so nothing here is remembered for retries; each action is such that doing
//! it again does no harm, if a break or a transfer names the token it means.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::model::command::{Action, Intervention};
use crate::model::event::{EndReason, Event};
use crate::model::id::{FenceToken, PublicSessionId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::{Intervened, Outcome, Rejection};
use crate::model::rules_version::RulesVersion;
use crate::model::table_limits::TableLimits;
use crate::state::deferred::Promotion;
use crate::state::freezes::Freeze;
use crate::state::hold::{Actor, HoldKey};
use crate::state::table::LockTable;

/// Waiters of a semaphore that are looked at for cycles when it gets fewer permits.
const WAITERS_LOOKED_AT_MAX: usize = 1_000;

impl LockTable {
    pub(crate) fn intervene(
        &mut self,
        intervention: Intervention,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let told = events.len();
        events.push(Event::Intervened(intervention.clone()));
        let Intervention { by, reason, action } = intervention;
        let done = match action {
            Action::Break { name, token } => self.break_holds(&name, token, events),
            Action::Transfer { name, token, to } => self.move_hold(&name, token, to, events),
            Action::Freeze { prefix, ttl } => {
                let until = self.now().after(ttl);
                self.freeze(prefix, Freeze { until, by, reason })
            }
            Action::Thaw { prefix } => self.thaw(&prefix, events),
            Action::SetPermits { name, limit } => self.set_permits(name, limit, events),
            Action::KillSession { session } => self.kill_session(session, events),
            Action::Reopen { name } => self.reopen_by_hand(&name, events),
            Action::SetLimits { bytes, locks } => self.set_limits(bytes, locks),
        };
        match done {
            Ok(done) => Outcome::Intervened(done),
            Err(rejection) => {
                events.truncate(told);
                Outcome::Rejected(rejection)
            }
        }
    }

    fn break_holds(
        &mut self,
        name: &LockName,
        token: Option<FenceToken>,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        #[cfg(feature = "planted")]
        let token = token.filter(|_| !crate::planted::Bug::BreakIgnoresToken.is_active());
        let resource = self.lock_map().get(name).ok_or(Rejection::NotHeld)?;
        let meant: Vec<HoldKey> = resource
            .holds()
            .filter(|hold| token.is_none_or(|token| hold.token == token))
            .map(|hold| hold.key())
            .collect();
        if meant.is_empty() {
            return Err(Rejection::NotHeld);
        }
        let holds = meant.len() as u64;
        for key in meant {
            self.end_hold(name, key, EndReason::Broken, events);
        }
        Ok(Intervened::Broken { holds })
    }

    fn move_hold(
        &mut self,
        name: &LockName,
        token: FenceToken,
        to: PublicSessionId,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        let resource = self.lock_map().get(name).ok_or(Rejection::NotHeld)?;
        let held = resource.holds().find(|hold| hold.token == token);
        let from = held.ok_or(Rejection::NotHeld)?.key();
        let lost = token;
        let token = self.hand_over(name, from, to, events)?;
        // Unlike a holder that hands over by itself, this one does not know: it has lost the lock.
        let losses_max = self.limits().remembered_losses_max;
        self.change_session(from.0, |session| session.remember_loss(lost, losses_max));
        Ok(Intervened::Transferred { token })
    }

    /// Again, with another end, is possible.
    fn freeze(&mut self, prefix: Box<str>, freeze: Freeze) -> Result<Intervened, Rejection> {
        if !self.freezes_in_force().contains(&prefix)
            && self.freezes_in_force().len() >= self.limits().freezes_max
        {
            return Err(Rejection::TooManyFreezes);
        }
        let until = freeze.until;
        self.add_freeze(prefix, freeze);
        Ok(Intervened::Frozen { until })
    }

    /// Whatever has become free under the prefix meanwhile goes to the next in line.
    pub(crate) fn thaw(
        &mut self,
        prefix: &str,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        if self.deferred().prefix_count() >= self.limits().freezes_max {
            return Err(Rejection::TooManyFreezes);
        }
        self.remove_freeze(prefix).ok_or(Rejection::NotFrozen)?;
        events.push(Event::Thawed { prefix: String::from(prefix) });
        if self.rules() >= RulesVersion::THREE {
            // There may be a million of them.
            self.defer(Promotion::Prefix { prefix: Box::from(prefix), passed: None });
            return Ok(Intervened::Thawed);
        }
        let under = self.lock_map().from(Bound::Included(prefix));
        let awaited: Vec<LockName> = under
            .take_while(|(name, _)| name.starts_with(prefix))
            .filter(|(_, resource)| resource.waiter_count() > 0)
            .map(|(name, _)| name.clone())
            .collect();
        awaited.into_iter().for_each(|name| self.note_freed(name));
        Ok(Intervened::Thawed)
    }

    /// More permits go to the next in line. Fewer take none away: what is out stays out.
    fn set_permits(
        &mut self,
        name: LockName,
        limit: Option<u32>,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        let in_use = self.lock_map().get(&name).is_some_and(|used| used.stated_permits().is_some());
        match limit {
            None if in_use => return Err(Rejection::PermitsInUse),
            Some(_)
                if !self.stored_permits().contains_key(&name)
                    && self.stored_permits().len() >= self.limits().stored_permits_max =>
            {
                return Err(Rejection::TooManyPermitsSet);
            }
            limit => self.store_permits(&name, limit),
        }
        let waiters: Vec<Actor> = self
            .lock_map()
            .get(&name)
            .into_iter()
            .flat_map(|resource| resource.queue().iter())
            .take(WAITERS_LOOKED_AT_MAX)
            .map(|(_, waiter)| (waiter.session, waiter.actor))
            .collect();
        let mut steps = self.search_steps();
        for waiter in waiters {
            self.end_waits_in_cycles(waiter, None, &mut steps, events);
        }
        self.note_freed(name);
        Ok(Intervened::PermitsSet)
    }

    /// Ends a lock delay before its time. The lock goes to the next in line, unless it is frozen as well.
    fn reopen_by_hand(
        &mut self,
        name: &LockName,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        let resource = self.lock_map().get(name).ok_or(Rejection::NotClosed)?;
        if resource.closed_until().is_none() {
            return Err(Rejection::NotClosed);
        }
        self.reopen(name, events);
        Ok(Intervened::Reopened)
    }

    /// What is there stays, even if it is more than the new limits allow.
    fn set_limits(
        &mut self,
        bytes: Option<u64>,
        locks: Option<u64>,
    ) -> Result<Intervened, Rejection> {
        let TableLimits { bytes: bytes_before, locks: locks_before } = self.table_limits();
        self.set_table_limits(TableLimits {
            bytes: bytes.unwrap_or(bytes_before),
            locks: locks.unwrap_or(locks_before),
        });
        Ok(Intervened::LimitsSet)
    }

    fn kill_session(
        &mut self,
        public: PublicSessionId,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        let ids: Vec<SessionId> = self.sessions_shown_as(public).collect();
        if ids.is_empty() {
            return Err(Rejection::NoSuchSession);
        }
        for id in ids {
            self.end_session(id, EndReason::Killed, events);
        }
        Ok(Intervened::SessionKilled)
    }
}
