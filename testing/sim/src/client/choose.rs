//! What a program does next when it has nothing better to do.

use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::lease::LocalTime;
use holdfast_client_core::session::Request;
use holdfast_core::command::{Action, Member, Mode, Policy, Terms};
use holdfast_core::{ActorId, LockName, Span};
use holdfast_proto::v1;

use super::{Client, ClientContext, Guard, Output, Program, wire};
use crate::history::Take;

/// Requests without an answer that a program has at most.
const IN_FLIGHT_MAX: usize = 5;

/// What was chosen.
pub(super) enum Choice {
    Ask(Box<Ask>),
    /// An acquire, and right behind it the wish that it had not been sent.
    AcquireAndCancel(Box<Ask>),
    /// The caller of this request goes away.
    Cancel(u64),
    /// A guard is dropped.
    Release(u64),
    Close,
    Intervene(Action),
    /// The stream breaks; the session goes on over another one, perhaps. If not, the client has not noticed: something
    /// between it and the node has died.
    BreakStream {
        comes_back: bool,
    },
    /// The process is started again, and knows nothing of what it held and waited for.
    Abandon,
    Nothing,
}

/// A request, and what the program has to remember of it.
pub(super) struct Ask {
    pub(super) request: Request,
    pub(super) actor: ActorId,
    pub(super) names: Vec<LockName>,
    pub(super) guard: Option<u64>,
    /// None if it does not stand in a queue.
    pub(super) wait: Option<Duration>,
}

impl Client {
    pub(super) fn choose(&mut self, program: &Program) -> Choice {
        if program.is_closing || program.calls.len() >= IN_FLIGHT_MAX || self.draining {
            return Choice::Nothing;
        }
        match self.rng.below(100) {
            0..19 => Choice::Ask(self.acquire(program, Span::ZERO)),
            19..40 => {
                let wait = Span::from_ms(self.rng.between(500, 30_000));
                Choice::Ask(self.acquire(program, wait))
            }
            40..65 => self.give_back(program),
            65..70 => self.renew(program),
            70..75 => self.cancel(program),
            75..78 => {
                let wait = Span::from_ms(self.rng.between(1_000, 30_000));
                Choice::AcquireAndCancel(self.acquire(program, wait))
            }
            78..84 => {
                let name = self.names.any(&mut self.rng);
                look(name)
            }
            84..88 => self.convert(program),
            88..90 => self.proclaim(program),
            90..93 => self.transfer(program),
            93..96 => self.intervene(),
            96..97 => Choice::Close,
            99..100 if self.rng.percent(70) => Choice::Abandon,
            97..99 if !program.is_unary => Choice::BreakStream { comes_back: self.rng.percent(70) },
            _ => Choice::Nothing,
        }
    }

    /// While the run comes to its end: give back what is held, and start nothing.
    pub(super) fn choose_last(&mut self, program: &Program) -> Choice {
        self.give_back(program)
    }

    fn acquire(&mut self, program: &Program, wait: Span) -> Box<Ask> {
        if self.rng.percent(8)
            && let Some(again) = self.enter_again(program, wait)
        {
            return again;
        }
        let all = self.rng.percent(15);
        let names = if all {
            self.names.some(&mut self.rng)
        } else {
            vec![self.names.any_to_acquire(&mut self.rng)]
        };
        let members: Vec<Member> = names
            .into_iter()
            .map(|name| Member { mode: self.mode(program, &name), name })
            .collect();
        let mixed = members.iter().all(|member| self.names.is_mixed(&member.name));
        let terms = self.terms(program, wait, mixed || all);
        let actor = ActorId(self.rng.below(4));
        take(Take { actor, all, members, terms })
    }

    /// A session reads a resource by one hold at a time, so that its token names it.
    fn mode(&mut self, program: &Program, name: &LockName) -> Mode {
        if let Some(permit) = self.names.permit(name, &mut self.rng) {
            return permit;
        }
        let shared = self.names.is_mixed(name) && self.rng.percent(55) && !program.uses(name);
        if shared { Mode::Shared } else { Mode::Exclusive }
    }

    /// `anything` is not asked for at locks that are to be simple to judge.
    fn terms(&mut self, program: &Program, wait: Span, anything: bool) -> Terms {
        let policy = self.policy();
        Terms {
            wait,
            policy,
            since: program.since.filter(|_| self.rng.percent(50)),
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
    /// same run again, and could not tell by the token.
    fn enter_again(&mut self, program: &Program, wait: Span) -> Option<Box<Ask>> {
        let names = self.names.clone();
        let fits =
            |guard: &Guard| names.is_mixed(&guard.name) && guard.hold.mode() == v1::Mode::Exclusive;
        let (_, guard) = self.any_guard(program, fits)?;
        let mode = if self.rng.percent(20) { Mode::Shared } else { Mode::Exclusive };
        let members = vec![Member { name: guard.name.clone(), mode }];
        let terms = Terms { wait, reentrant: true, ..Terms::default() };
        Some(take(Take { actor: guard.actor, all: false, members, terms }))
    }

    fn give_back(&mut self, program: &Program) -> Choice {
        match self.any_guard(program, |_| true) {
            Some((number, _)) if self.rng.percent(30) => Choice::Release(number),
            Some((number, guard)) => about(number, guard, None, |hold| Request::Release { hold }),
            None => Choice::Nothing,
        }
    }

    /// One of its holds about which it has asked nothing that is not answered.
    pub(super) fn any_guard<'a>(
        &mut self,
        program: &'a Program,
        fits: impl Fn(&Guard) -> bool,
    ) -> Option<(u64, &'a Guard)> {
        let idle: Vec<(u64, &Guard)> = program
            .guards
            .iter()
            .filter(|(number, guard)| fits(guard) && !program.is_busy(**number))
            .map(|(number, guard)| (*number, guard))
            .collect();
        self.rng.pick(&idle).copied()
    }

    fn renew(&mut self, program: &Program) -> Choice {
        let ttl_ms = self.rng.percent(50).then(|| self.rng.between(3_000, 30_000));
        let ttl = ttl_ms.map(Duration::from_millis);
        match self.any_guard(program, |_| true) {
            Some((number, guard)) => {
                about(number, guard, None, |hold| Request::Renew { hold, ttl })
            }
            None => Choice::Nothing,
        }
    }

    /// Up or down. Down only if it does not wait for the same: it would join itself as a second reader.
    fn convert(&mut self, program: &Program) -> Choice {
        let names = self.names.clone();
        let is_shared = |guard: &Guard| guard.hold.mode() == v1::Mode::Shared;
        let fits = |guard: &Guard| {
            names.is_mixed(&guard.name) && (is_shared(guard) || !program.asks_about(&guard.name))
        };
        let Some((number, guard)) = self.any_guard(program, fits) else { return Choice::Nothing };
        let mode = if is_shared(guard) { v1::Mode::Exclusive } else { v1::Mode::Shared };
        let wait_ms = if self.rng.percent(70) { self.rng.between(500, 20_000) } else { 0 };
        let (wait, policy) = (Duration::from_millis(wait_ms), wire::policy(self.policy()));
        about(number, guard, Some(wait), |hold| Request::Convert { hold, mode, wait, policy })
    }

    fn proclaim(&mut self, program: &Program) -> Choice {
        let metadata = self.rng.below(1 << 32).to_le_bytes().to_vec();
        match self.any_guard(program, |_| true) {
            Some((number, guard)) => {
                about(number, guard, None, |hold| Request::Proclaim { hold, metadata })
            }
            None => Choice::Nothing,
        }
    }

    fn cancel(&mut self, program: &Program) -> Choice {
        let waiting = program.calls.iter().filter(|(_, asked)| asked.can_wait);
        let waiting: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        self.rng.pick(&waiting).map_or(Choice::Nothing, |number| Choice::Cancel(*number))
    }

    /// Uses each lock that it believes to hold, now and then.
    pub(super) fn write_under_locks(
        &mut self,
        program: &Program,
        local: LocalTime,
        context: &mut ClientContext<'_>,
    ) {
        if program.is_closing {
            return;
        }
        for guard in program.guards.values() {
            // A permit is no fence.
            if guard.hold.mode() == v1::Mode::Permit || !self.rng.percent(50) {
                continue;
            }
            if let Ok(token) = guard.hold.token(local) {
                context.outputs.push(Output::Write {
                    after_us: self.rng.below(100_000),
                    write: super::Write {
                        believed: context.now,
                        session: program.session_id(),
                        name: guard.name.clone(),
                        token: holdfast_core::FenceToken(token),
                        clock_stood_still: program.clock_stood_still,
                    },
                });
            }
        }
    }
}

fn take(take: Take) -> Box<Ask> {
    let names = take.members.iter().map(|member| member.name.clone()).collect();
    let (actor, wait) = (take.actor, Some(Duration::from_millis(take.terms.wait.as_ms())));
    Box::new(Ask { request: wire::acquire(take), actor, names, guard: None, wait })
}

/// A request about a hold.
pub(super) fn about(
    number: u64,
    guard: &Guard,
    wait: Option<Duration>,
    request: impl FnOnce(Arc<holdfast_client_core::hold::Hold>) -> Request,
) -> Choice {
    let (request, names) = (request(Arc::clone(&guard.hold)), vec![guard.name.clone()]);
    Choice::Ask(Box::new(Ask { request, actor: guard.actor, names, guard: Some(number), wait }))
}

/// A read of a lock.
pub(super) fn look(name: LockName) -> Choice {
    let request = Request::Status { name: name.as_str().to_owned() };
    let (actor, names) = (ActorId(0), Vec::new());
    Choice::Ask(Box::new(Ask { request, actor, names, guard: None, wait: None }))
}
