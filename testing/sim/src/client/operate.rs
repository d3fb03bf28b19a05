//! What changes other people's holds: a holder hands its lock on, an operator steps in. Both act on what they
//! have seen, which may be long past.

use holdfast_core::command::Action;
use holdfast_core::{FenceToken, LockName, PublicSessionId, SessionId, Span};

use holdfast_client_core::session::Request;
use holdfast_proto::v1;

use super::choose::{Choice, about, look};
use super::{Client, Guard, Program, Seen};
use crate::names::Names;

impl Client {
    /// To a session that it saw waiting; or to one that it saw elsewhere, which may not want it; or else it looks.
    pub(super) fn transfer(&mut self, program: &Program) -> Choice {
        let names = self.names.clone();
        let fits =
            |guard: &Guard| guard.hold.mode() == v1::Mode::Exclusive && names.is_mixed(&guard.name);
        let Some((number, guard)) = self.any_guard(program, fits) else { return Choice::Nothing };
        let waits = self.seen.get(&guard.name).and_then(|seen| seen.waiter);
        let elsewhere = self.held_by_somebody();
        let elsewhere = elsewhere.map(|(_, (session, _), _)| PublicSessionId(session.0 as u64));
        match waits.or(elsewhere) {
            Some(to) => {
                let to = holdfast_proto::PublicSessionId::from_number(to.0).to_string();
                about(number, guard, None, |hold| Request::Transfer { hold, to })
            }
            None => look(guard.name.clone()),
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
        Choice::Intervene(action)
    }

    fn look(&mut self) -> Choice {
        look(self.names.any_mixed(&mut self.rng))
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
