//! When a hold can have ended although no client asked for it.
//!
//! Where the log is known, that is known. Where not, there is a first possible moment: the session's TTL (or its
//! linger time, if its stream may have broken) after its last request that was answered; or the hold's own
//! TTL after its last answered renewal; or its max-hold.

use std::collections::BTreeMap;

use holdfast_core::command::Action;
use holdfast_core::{FenceToken, Outcome, PublicSessionId, SessionId};

use crate::check::expiry::kept_alive_at;
use crate::check::promises::Promises;
use crate::history::{ClientOperation, History, Input, Output, RealTime};

#[derive(Debug)]
pub(super) struct Lifetimes<'a> {
    promises: &'a Promises,
    rates_broken: bool,
    /// How much earlier something can end because clocks leapt, at any time of the run.
    leapt_us: u64,
    sessions: BTreeMap<SessionId, Life>,
    renewals: BTreeMap<(SessionId, FenceToken), Renewals>,
    /// When an operator first asked to end a session.
    killed: BTreeMap<PublicSessionId, RealTime>,
}

#[derive(Debug, Default)]
struct Life {
    public: Option<PublicSessionId>,
    /// How often it was opened: an id that is opened again has several lives, and they cannot be told apart.
    opened: u64,
    /// The shorter of TTL and linger; zero while it is not known.
    span_ms: u64,
    last_sent: RealTime,
}

#[derive(Debug, Default)]
struct Renewals {
    shortest_ttl_ms: Option<u64>,
    last_answered: RealTime,
}

impl<'a> Lifetimes<'a> {
    pub(super) fn of(history: &History, promises: &'a Promises) -> Lifetimes<'a> {
        let mut sessions: BTreeMap<SessionId, Life> = BTreeMap::new();
        let mut renewals: BTreeMap<(SessionId, FenceToken), Renewals> = BTreeMap::new();
        let mut killed = BTreeMap::new();
        let policy_changes = history.policy_changes();
        for operation in &history.operations {
            let life = sessions.entry(operation.session).or_default();
            if let Some(sent) = kept_alive_at(operation, policy_changes) {
                life.last_sent = life.last_sent.max(sent);
            }
            let outcome = match &operation.returned {
                Some((_, Output::Outcome(outcome))) => Some(outcome),
                _ => None,
            };
            match &operation.input {
                Input::OpenSession { .. } => {
                    life.opened += 1;
                    if let Some(Outcome::SessionOpen { public, ttl, linger, .. }) = outcome {
                        life.public = Some(*public);
                        life.span_ms = ttl.as_ms().min(linger.as_ms());
                    }
                }
                Input::Renew { token, ttl_ms, .. } => {
                    let known = renewals.entry((operation.session, *token)).or_default();
                    known.shortest_ttl_ms = shorter(known.shortest_ttl_ms, *ttl_ms);
                    if let Some(Outcome::Renewed { .. }) = outcome {
                        known.last_answered = known.last_answered.max(operation.invoked);
                    }
                }
                Input::Intervene(Action::KillSession { session }) => {
                    killed.entry(*session).or_insert(operation.invoked);
                }
                _ => {}
            }
        }
        let leapt_us = history.clocks.leapt_us(RealTime(0), history.end);
        let rates_broken = history.rates_broken;
        Lifetimes { promises, rates_broken, leapt_us, sessions, renewals, killed }
    }

    /// From when on the hold that this acquire was granted can have ended on its own.
    pub(super) fn may_end_from(
        &self,
        acquire: &ClientOperation,
        token: Option<FenceToken>,
    ) -> RealTime {
        if self.rates_broken || !acquire.input.is_acquire() {
            return acquire.invoked;
        }
        let (ttl_ms, max_hold_ms) = (acquire.input.ttl_ms(), acquire.input.max_hold_ms());
        let mut from = self.session_may_end_from(acquire.session).unwrap_or(acquire.invoked);
        if let Some(max_hold_ms) = max_hold_ms {
            from = from.min(self.promises.earliest(acquire.invoked, max_hold_ms));
        }
        let renewals = token.and_then(|token| self.renewals.get(&(acquire.session, token)));
        let shortest = shorter(ttl_ms, renewals.and_then(|known| known.shortest_ttl_ms));
        if let Some(ttl_ms) = shortest {
            let answered = renewals.map_or(RealTime(0), |known| known.last_answered);
            from = from.min(self.promises.earliest(acquire.invoked.max(answered), ttl_ms));
        }
        RealTime(from.0.saturating_sub(self.leapt_us)).max(acquire.invoked)
    }

    fn session_may_end_from(&self, session: SessionId) -> Option<RealTime> {
        let life = self.sessions.get(&session).filter(|life| life.opened == 1)?;
        let by_itself = self.promises.earliest(life.last_sent, life.span_ms);
        let killed = life.public.and_then(|public| self.killed.get(&public));
        Some(killed.map_or(by_itself, |killed| by_itself.min(*killed)))
    }
}

fn shorter(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
