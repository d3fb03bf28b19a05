//! What a client does next when it has nothing better to do.

use holdfast_client_core::lease::LocalTime;
use holdfast_core::command::{Member, Mode, Policy, Terms};
use holdfast_core::{ActorId, LockName, RequestId, Span};

use super::ask::Ask;
use super::session::{Held, HoldKey, Session};
use super::{Client, Output};
use crate::history::{RealTime, Take};

/// Requests without an answer that a client has at most.
const IN_FLIGHT_MAX: usize = 5;

/// What was chosen.
pub(super) enum Choice {
    Ask(Ask),
    /// An acquire, and right behind it the wish that it had not been sent.
    AcquireAndCancel(Ask),
    /// The stream breaks; the session goes on over another one, perhaps. If not, the client has not noticed: something
    /// between it and the node has died.
    BreakStream {
        comes_back: bool,
    },
    /// The client learns late that its stream is broken.
    NoticeBrokenStream,
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
        if session.is_stream_broken && self.rng.percent(10) {
            return Choice::NoticeBrokenStream;
        }
        if session.pending.len() >= IN_FLIGHT_MAX || self.draining {
            return Choice::Nothing;
        }
        match self.rng.below(100) {
            0..19 => Choice::Ask(self.acquire(session, Span::ZERO)),
            19..40 => {
                let wait = Span::from_ms(self.rng.between(500, 30_000));
                Choice::Ask(self.acquire(session, wait))
            }
            40..65 => self.give_back(session),
            65..70 => self.renew(session),
            70..75 => self.cancel(session),
            75..78 => {
                let wait = Span::from_ms(self.rng.between(1_000, 30_000));
                Choice::AcquireAndCancel(self.acquire(session, wait))
            }
            78..84 => Choice::Ask(Ask::Status { name: self.names.any(&mut self.rng) }),
            84..88 => self.convert(session),
            88..90 => self.proclaim(session),
            90..93 => self.transfer(session),
            93..96 => self.intervene(),
            96..97 => Choice::Ask(Ask::Close),
            // Its process was started anew and knows nothing of it.
            99..100 if self.rng.percent(70) => Choice::Abandon,
            97..99 if !session.is_unary => Choice::BreakStream { comes_back: self.rng.percent(70) },
            _ => Choice::Nothing,
        }
    }

    /// While the run comes to its end: give back what is held, and start nothing.
    pub(super) fn choose_last(&mut self, session: &Session) -> Choice {
        if session.leases.is_some() { self.give_back(session) } else { Choice::Nothing }
    }

    fn acquire(&mut self, session: &Session, wait: Span) -> Ask {
        if self.rng.percent(8)
            && let Some(again) = self.enter_again(session, wait)
        {
            return again;
        }
        let all = self.rng.percent(15);
        let names =
            if all { self.names.some(&mut self.rng) } else { vec![self.names.any(&mut self.rng)] };
        let members: Vec<Member> = names
            .into_iter()
            .map(|name| Member { mode: self.mode(session, &name), name })
            .collect();
        let mixed = members.iter().all(|member| self.names.is_mixed(&member.name));
        let terms = self.terms(session, wait, mixed || all);
        let actor = ActorId(self.rng.below(4));
        Ask::Take(Box::new(Take { actor, all, members, terms }))
    }

    /// A session reads a resource by one hold at a time, so that its token names it.
    fn mode(&mut self, session: &Session, name: &LockName) -> Mode {
        if let Some(permit) = self.names.permit(name, &mut self.rng) {
            return permit;
        }
        let shared = self.names.is_mixed(name) && self.rng.percent(55) && !session.uses(name);
        if shared { Mode::Shared } else { Mode::Exclusive }
    }

    /// `anything` is not asked for at locks that are to be simple to judge.
    fn terms(&mut self, session: &Session, wait: Span, anything: bool) -> Terms {
        let policy = self.policy();
        Terms {
            wait,
            policy,
            since: session.since.filter(|_| self.rng.percent(50)),
            preemptible: anything && self.rng.percent(40),
            reentrant: false,
            ttl: self.rng.percent(30).then(|| Span::from_ms(self.rng.between(3_000, 30_000))),
            max_hold: self.rng.percent(20).then(|| Span::from_ms(self.rng.between(5_000, 40_000))),
            lock_delay: (anything && self.rng.percent(20))
                .then(|| Span::from_ms(self.rng.between(500, 8_000))),
            metadata: Box::default(),
        }
    }

    fn policy(&mut self) -> Policy {
        match self.rng.below(10) {
            0..3 => Policy::Wait,
            3..6 => Policy::Detect,
            6..8 => Policy::WaitDie,
            _ => Policy::WoundWait,
        }
    }

    /// What the same actor holds already. Not as a reader: if that hold has ended unheard, the session may join the
    /// same run anew, and could not tell by the token.
    fn enter_again(&mut self, session: &Session, wait: Span) -> Option<Ask> {
        let names = self.names.clone();
        let fits = |held: &Held| names.is_mixed(&held.name) && held.mode == Mode::Exclusive;
        let (_, held) = self.any_hold(session, fits)?;
        let mode = if self.rng.percent(20) { Mode::Shared } else { Mode::Exclusive };
        let member = Member { name: held.name.clone(), mode };
        let terms = Terms { wait, reentrant: true, ..Terms::default() };
        let members = vec![member];
        Some(Ask::Take(Box::new(Take { actor: held.actor, all: false, members, terms })))
    }

    fn give_back(&mut self, session: &Session) -> Choice {
        // Its token must not name another hold by now, nor one that was entered again meanwhile.
        let again = session.given_back.as_ref().filter(|(_, held)| !session.uses(&held.name));
        let again = again.filter(|_| self.rng.percent(5));
        let held = self.any_hold(session, |_| true);
        let meant = match again {
            Some((key, held)) => Some(held.meant(*key)),
            None => held.map(|(key, held)| held.meant(key)),
        };
        meant.map_or(Choice::Nothing, |meant| Choice::Ask(Ask::Release(meant)))
    }

    /// One of its holds about which it has asked nothing that is not answered.
    pub(super) fn any_hold<'a>(
        &mut self,
        session: &'a Session,
        fits: impl Fn(&Held) -> bool,
    ) -> Option<(HoldKey, &'a Held)> {
        let idle: Vec<(HoldKey, &Held)> = session
            .holds
            .iter()
            .filter(|(key, held)| fits(held) && !session.is_busy(**key))
            .map(|(key, held)| (*key, held))
            .collect();
        self.rng.pick(&idle).copied()
    }

    fn renew(&mut self, session: &Session) -> Choice {
        let ttl = self.rng.percent(50).then(|| Span::from_ms(self.rng.between(3_000, 30_000)));
        match self.any_hold(session, |_| true) {
            Some((key, held)) => Choice::Ask(Ask::Renew { hold: held.meant(key), ttl }),
            None => Choice::Nothing,
        }
    }

    /// Up or down. Down only if it does not wait for the same: it would join itself as a second reader.
    fn convert(&mut self, session: &Session) -> Choice {
        let names = self.names.clone();
        let fits = |held: &Held| {
            names.is_mixed(&held.name)
                && (held.mode == Mode::Shared || !session.asks_about(&held.name))
        };
        let Some((key, held)) = self.any_hold(session, fits) else { return Choice::Nothing };
        let to = if held.mode == Mode::Shared { Mode::Exclusive } else { Mode::Shared };
        let waits = self.rng.percent(70);
        let wait = if waits { Span::from_ms(self.rng.between(500, 20_000)) } else { Span::ZERO };
        let policy = self.policy();
        Choice::Ask(Ask::Convert { hold: held.meant(key), to, wait, policy })
    }

    fn proclaim(&mut self, session: &Session) -> Choice {
        match self.any_hold(session, |_| true) {
            Some((key, held)) => Choice::Ask(Ask::Proclaim { hold: held.meant(key) }),
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
            session.waits().into_iter().filter(|request| !cancelled(request)).collect();
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
        for (key, hold) in &session.holds {
            // A permit is no fence.
            if hold.leaving || matches!(hold.mode, Mode::Permit { .. }) {
                continue;
            }
            if self.rng.percent(50) && session.is_valid(*key, local) {
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
