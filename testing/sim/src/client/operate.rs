//! What changes other people's holds: a holder hands its lock on, an operator steps in. Both act on what they
//! have seen, which may be long past.

use holdfast_core::command::{Action, Mode};
use holdfast_core::{FenceToken, LockName, PublicSessionId, SessionId, Span};

use super::ask::Ask;
use super::choose::Choice;
use super::session::{Held, Session};
use super::{Client, Seen};
use crate::names::Names;

impl Client {
    /// To one whom it saw waiting; or to somebody whom it saw elsewhere, who may not want it; or else it looks.
    pub(super) fn transfer(&mut self, session: &Session) -> Choice {
        let names = self.names.clone();
        let fits = |held: &Held| held.mode == Mode::Exclusive && names.is_mixed(&held.name);
        let Some((key, held)) = self.any_hold(session, fits) else { return Choice::Nothing };
        let waits = self.seen.get(&held.name).and_then(|seen| seen.waiter);
        let elsewhere = self.held_by_somebody();
        let elsewhere = elsewhere.map(|(_, (session, _), _)| PublicSessionId(session.0 as u64));
        match waits.or(elsewhere) {
            Some(to) => Choice::Ask(Ask::Transfer { hold: held.meant(key), to }),
            None => Choice::Ask(Ask::Status { name: held.name.clone() }),
        }
    }

    pub(super) fn intervene(&mut self) -> Choice {
        let rng = &mut self.rng;
        let action = match rng.below(100) {
            0..25 => {
                let Some((name, (_, token), _)) = self.held_by_somebody() else {
                    return self.look();
                };
                let token = Some(token).filter(|_| self.rng.percent(90));
                Action::Break { name, token }
            }
            25..45 => {
                let Some((name, (_, token), Some(to))) = self.held_by_somebody() else {
                    return self.look();
                };
                Action::Transfer { name, token, to }
            }
            45..60 => {
                let ttl = Span::from_ms(rng.between(500, 15_000));
                Action::Freeze { prefix: Names::any_prefix(rng).into(), ttl }
            }
            60..68 => Action::Reopen { name: self.names.any_mixed(rng) },
            68..75 => Action::Thaw { prefix: Names::any_prefix(rng).into() },
            75..78 => {
                // More than the locks of a simulation take, so that nothing is refused.
                let bytes = Some(rng.between(64, 1_024) << 20);
                let locks = rng.percent(50).then(|| rng.between(100_000, 1_000_000));
                Action::SetLimits { bytes, locks }
            }
            78..88 => {
                let Some(name) = rng.pick(&self.names.semaphores).cloned() else {
                    return Choice::Nothing;
                };
                let limit = rng.percent(60).then(|| rng.between(1, 4) as u32);
                Action::SetPermits { name, limit }
            }
            _ => {
                let Some((_, (session, _), _)) = self.held_by_somebody() else {
                    return self.look();
                };
                Action::KillSession { session: PublicSessionId(session.0 as u64) }
            }
        };
        Choice::Ask(Ask::Intervene(action))
    }

    fn look(&mut self) -> Choice {
        Choice::Ask(Ask::Status { name: self.names.any_mixed(&mut self.rng) })
    }

    fn held_by_somebody(
        &mut self,
    ) -> Option<(LockName, (SessionId, FenceToken), Option<PublicSessionId>)> {
        let held: Vec<_> = self
            .seen
            .iter()
            .filter(|(name, _)| self.names.is_mixed(name) || self.names.semaphores.contains(name))
            .filter_map(|(name, Seen { holder, waiter })| Some((name.clone(), (*holder)?, *waiter)))
            .collect();
        self.rng.pick(&held).cloned()
    }
}
