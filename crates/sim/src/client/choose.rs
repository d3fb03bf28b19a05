//! What a client does next when it has nothing better to do.

use holdfast_client::lease::LocalTime;
use holdfast_core::{LockName, RequestId, Span};

use super::ask::Ask;
use super::session::Session;
use super::{Client, Output};
use crate::history::RealTime;

/// Requests without an answer that a client has at most.
const IN_FLIGHT_MAX: usize = 5;

/// What was chosen.
pub(super) enum Choice {
    Ask(Ask),
    /// An acquire, and right behind it the wish that it had not been sent.
    AcquireAndCancel(Ask),
    /// The stream breaks; the session goes on over another one, perhaps.
    BreakStream {
        comes_back: bool,
    },
    /// The session is forgotten, with all that it holds and waits for.
    Abandon,
    Nothing,
}

impl Client {
    pub(super) fn choose(&mut self, session: &Session, local: LocalTime) -> Choice {
        if session.leases.is_none() || session.closing {
            return Choice::Nothing;
        }
        if session.heartbeat_due(local) {
            return Choice::Ask(Ask::Touch);
        }
        if session.pending.len() >= IN_FLIGHT_MAX || self.draining {
            return Choice::Nothing;
        }
        match self.rng.below(100) {
            0..22 => Choice::Ask(self.acquire(Span::ZERO)),
            22..44 => {
                let wait = Span::from_ms(self.rng.between(500, 30_000));
                Choice::Ask(self.acquire(wait))
            }
            44..70 => self.give_back(session),
            70..77 => self.renew(session),
            77..82 => self.cancel(session),
            82..85 => {
                let wait = Span::from_ms(self.rng.between(1_000, 30_000));
                Choice::AcquireAndCancel(self.acquire(wait))
            }
            85..95 => Choice::Ask(Ask::Status { name: self.any_name() }),
            95..96 => Choice::Ask(Ask::Close),
            // Its process was started anew and knows nothing of it.
            98..99 if self.rng.percent(70) => Choice::Abandon,
            96..98 => Choice::BreakStream { comes_back: self.rng.percent(70) },
            _ => Choice::Nothing,
        }
    }

    /// While the run comes to its end: give back what is held, and start nothing.
    pub(super) fn choose_last(&mut self, session: &Session) -> Choice {
        if session.leases.is_some() { self.give_back(session) } else { Choice::Nothing }
    }

    fn acquire(&mut self, wait: Span) -> Ask {
        let ttl = self.rng.percent(30).then(|| Span::from_ms(self.rng.between(3_000, 30_000)));
        let max_hold = self.rng.percent(20).then(|| Span::from_ms(self.rng.between(5_000, 40_000)));
        Ask::Acquire { name: self.any_name(), wait, ttl, max_hold }
    }

    fn any_name(&mut self) -> LockName {
        // The last one is the client's own; the others are everybody's.
        let last = self.names.len() - 1;
        let index = if self.rng.percent(15) { last } else { self.rng.index(last) };
        self.names[index].clone()
    }

    fn give_back(&mut self, session: &Session) -> Choice {
        let again = session.given_back.as_ref().filter(|_| self.rng.percent(5));
        let held: Vec<_> = session.holds.values().collect();
        match again.or(self.rng.pick(&held).copied()) {
            Some(hold) => Choice::Ask(Ask::Release { name: hold.name.clone(), token: hold.token }),
            None => Choice::Nothing,
        }
    }

    fn renew(&mut self, session: &Session) -> Choice {
        let held: Vec<_> =
            session.holds.iter().filter(|(_, hold)| !session.is_being_renewed(hold)).collect();
        let ttl = self.rng.percent(50).then(|| Span::from_ms(self.rng.between(3_000, 30_000)));
        match self.rng.pick(&held) {
            Some((request, hold)) => {
                let (name, token) = (hold.name.clone(), hold.token);
                Choice::Ask(Ask::Renew { hold: **request, name, token, ttl })
            }
            None => Choice::Nothing,
        }
    }

    fn cancel(&mut self, session: &Session) -> Choice {
        let cancelled = |request: &RequestId| {
            session
                .pending
                .values()
                .any(|pending| matches!(pending.ask, Ask::Cancel { target } if target == *request))
        };
        let waiting: Vec<RequestId> =
            session.acquires().into_iter().filter(|request| !cancelled(request)).collect();
        match self.rng.pick(&waiting) {
            Some(target) => Choice::Ask(Ask::Cancel { target: *target }),
            None => Choice::Nothing,
        }
    }

    /// Uses each lock that it believes to hold, now and then.
    pub(super) fn write_under_locks(
        &mut self,
        session: &Session,
        now: RealTime,
        local: LocalTime,
        outputs: &mut Vec<Output>,
    ) {
        if session.closing {
            return;
        }
        for (request, hold) in &session.holds {
            if self.rng.percent(50) && session.is_valid(*request, local) {
                outputs.push(Output::Write {
                    after_us: self.rng.below(100_000),
                    write: super::Write {
                        believed: now,
                        session: session.id,
                        name: hold.name.clone(),
                        token: hold.token,
                        clock_stood_still: session.clock_stood_still,
                    },
                });
            }
        }
    }
}
