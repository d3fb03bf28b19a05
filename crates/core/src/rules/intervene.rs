//! `Intervene`: an operator steps in. Every intervention is told as an event, with who and why, before
//! what comes of it.
//!
//! Operators have no session, so nothing here is remembered for retries; each action is such that doing
//! it again does no harm, if a break or a transfer names the token it means.

use alloc::vec::Vec;

use crate::model::command::{Action, Intervention};
use crate::model::event::{EndReason, Event};
use crate::model::id::{PublicSessionId, SessionId};
use crate::model::name::LockName;
use crate::model::outcome::{Intervened, Outcome, Rejection};
use crate::model::table_limits::TableLimits;
use crate::state::freezes::Freeze;
use crate::state::table::LockTable;

impl LockTable {
    pub(crate) fn intervene(
        &mut self,
        intervention: Intervention,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let events_before = events.len();
        events.push(Event::Intervened(intervention.clone()));
        let Intervention { by, reason, action, .. } = intervention;
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
                events.truncate(events_before);
                Outcome::Rejected(rejection)
            }
        }
    }

    /// Ends a lock delay before its time. The lock goes to the next in line, unless it is frozen as well.
    fn reopen_by_hand(
        &mut self,
        name: &LockName,
        events: &mut Vec<Event>,
    ) -> Result<Intervened, Rejection> {
        let lock = self.lock_map().get(name).ok_or(Rejection::NotClosed)?;
        if lock.closed_until().is_none() {
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
        let outgoing = self.moves().outgoing();
        let is_on_its_way = outgoing.is_some_and(|it| it.travellers.contains(&public));
        if self.moves().is_installing() || is_on_its_way {
            // What of the session is neither here nor there would outlive it.
            return Err(Rejection::MoveUnderWay);
        }
        if ids.is_empty() {
            return Err(Rejection::NoSuchSession);
        }
        for id in ids {
            self.end_session(id, EndReason::Killed, events);
        }
        Ok(Intervened::SessionKilled)
    }
}
