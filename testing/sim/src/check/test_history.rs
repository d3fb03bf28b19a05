//! Short histories for the checkers' own tests. Sessions are small numbers; times are milliseconds.

use holdfast_core::command::{Action, Intervention, Member, Mode, Terms};
use holdfast_core::{
    ActorId, EndReason, Event, FenceToken, Grant, LockName, LogIndex, LogicalTime, Names, Outcome,
    PublicSessionId, RequestId, SessionId, Span,
};
use holdfast_replica::NodeId;

use super::evidence::Evidence;
use crate::history::{
    ClientOperation, Happening, History, Input, Output, RealTime, Replicated, StoreWrite, Take,
};

#[derive(Clone, Default)]
pub(super) struct TestHistory {
    pub(super) history: History,
}

/// An operation that was invoked; it has no answer yet.
pub(super) struct Asked<'a>(&'a mut ClientOperation);

impl TestHistory {
    pub(super) fn evidence(&self) -> Evidence<'_> {
        Evidence::of(&self.history)
    }

    /// On every node; the index is the time as well.
    pub(super) fn log(&mut self, index: u64, events: impl IntoIterator<Item = Event>) {
        self.applied(1, index, events);
    }

    pub(super) fn log_at(&mut self, index: u64, at: u64, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.record(1, index, at, Happening::Event(event));
        }
    }

    pub(super) fn applied(
        &mut self,
        node: u64,
        index: u64,
        events: impl IntoIterator<Item = Event>,
    ) {
        for event in events {
            self.record(node, index, index, Happening::Event(event));
        }
    }

    pub(super) fn happened(&mut self, node: u64, index: u64, what: Happening) {
        self.record(node, index, index, what);
    }

    fn record(&mut self, node: u64, index: u64, at: u64, what: Happening) {
        self.history.replicated.push(Replicated {
            real: ms(at),
            node: NodeId(node),
            index: LogIndex(index),
            logical: LogicalTime::from_ms(at),
            what,
        });
        self.history.end = self.history.end.max(ms(at));
    }

    pub(super) fn ask(&mut self, session: u128, request: u64, input: Input) -> Asked<'_> {
        self.history.operations.push(ClientOperation {
            session: SessionId(session),
            request: RequestId(request),
            input,
            invoked: ms(0),
            returned: None,
            last_sent: ms(0),
        });
        Asked(self.history.operations.last_mut().unwrap())
    }

    pub(super) fn open(&mut self, session: u128, ttl_ms: u64, linger_ms: u64, at: u64) {
        let outcome = Outcome::SessionOpen {
            public: PublicSessionId(session as u64),
            ttl: Span::from_ms(ttl_ms),
            linger: Span::from_ms(linger_ms),
            departures: None,
        };
        self.ask(session, 0, Input::OpenSession { ttl_ms }).from(at).until(at, outcome);
    }

    pub(super) fn acquire(&mut self, lock: &str, session: u128, request: u64) -> Asked<'_> {
        let input =
            Input::Acquire { name: name(lock), wait_ms: 0, ttl_ms: None, max_hold_ms: None };
        self.ask(session, request, input)
    }

    pub(super) fn release(
        &mut self,
        lock: &str,
        session: u128,
        request: u64,
        token: u64,
    ) -> Asked<'_> {
        let input = Input::Release { name: name(lock), token: FenceToken(token) };
        self.ask(session, request, input)
    }

    pub(super) fn write(&mut self, lock: &str, session: u128, token: u64, at: u64, accepted: bool) {
        self.history.writes.push(StoreWrite {
            at: ms(at),
            believed: ms(at),
            session: SessionId(session),
            name: name(lock),
            token: FenceToken(token),
            clock_stood_still: false,
            accepted,
        });
    }
}

impl<'a> Asked<'a> {
    pub(super) fn from(self, at: u64) -> Asked<'a> {
        self.0.invoked = ms(at);
        self.0.last_sent = ms(at);
        self
    }

    /// The answer is one to a second sending.
    pub(super) fn sent_again(self, at: u64) -> Asked<'a> {
        self.0.last_sent = ms(at);
        self
    }

    pub(super) fn until(self, at: u64, outcome: Outcome) {
        self.0.returned = Some((ms(at), Output::Outcome(outcome)));
    }

    pub(super) fn saw(self, at: u64, holder: Option<(u128, u64)>) {
        let holder = holder.map(|(session, token)| (SessionId(session), FenceToken(token)));
        self.0.returned = Some((ms(at), Output::Status { holder, waiters: 0 }));
    }
}

pub(super) fn ms(ms: u64) -> RealTime {
    RealTime(ms * 1_000)
}

pub(super) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

/// An acquire of these, exclusively; of several at once.
pub(super) fn take(locks: &[&str]) -> Input {
    let members: Vec<Member> =
        locks.iter().map(|lock| Member { name: name(lock), mode: Mode::Exclusive }).collect();
    let (actor, all) = (ActorId(0), members.len() > 1);
    Input::Take(Box::new(Take { actor, all, members, terms: Terms::default() }))
}

/// The answer of an acquire.
pub(super) fn grants(lock: &str, token: u64) -> Outcome {
    Outcome::Granted(Grant {
        name: name(lock),
        acquire: RequestId(1),
        token: FenceToken(token),
        mode: Mode::Exclusive,
        deadline: None,
        session_deadline: LogicalTime::ZERO,
    })
}

pub(super) fn granted(lock: &str, session: u128, request: u64, token: u64) -> Event {
    granted_as(lock, session, request, token, Mode::Exclusive)
}

pub(super) fn granted_as(lock: &str, session: u128, request: u64, token: u64, mode: Mode) -> Event {
    Event::Granted {
        name: name(lock),
        session: SessionId(session),
        request: RequestId(request),
        actor: ActorId(0),
        mode,
        token: FenceToken(token),
        metadata: Box::default(),
    }
}

/// `request` is the acquire of the hold.
pub(super) fn converted(lock: &str, session: u128, request: u64, token: u64, mode: Mode) -> Event {
    Event::Converted {
        name: name(lock),
        session: SessionId(session),
        request: RequestId(request),
        mode,
        token: FenceToken(token),
        metadata: [].into(),
    }
}

pub(super) fn intervened(action: Action) -> Event {
    Event::Intervened(Intervention {
        by: "an operator".into(),
        reason: "a test".into(),
        action,
        identity: None,
    })
}

pub(super) fn set_permits(lock: &str, limit: Option<u32>) -> Event {
    intervened(Action::SetPermits { name: name(lock), limit })
}

/// `request` is the acquire of the hold.
pub(super) fn released(lock: &str, session: u128, request: u64, token: u64) -> Event {
    Event::Released {
        name: name(lock),
        session: SessionId(session),
        request: RequestId(request),
        token: FenceToken(token),
        granted_at: LogicalTime::ZERO,
        by_close: false,
    }
}

pub(super) fn given_back_by_close(lock: &str, session: u128, request: u64, token: u64) -> Event {
    Event::Released {
        name: name(lock),
        session: SessionId(session),
        request: RequestId(request),
        token: FenceToken(token),
        granted_at: LogicalTime::ZERO,
        by_close: true,
    }
}

pub(super) fn hold_ended(lock: &str, session: u128, request: u64, token: u64) -> Event {
    hold_ended_by(lock, session, request, token, EndReason::Ttl)
}

pub(super) fn hold_ended_by(
    lock: &str,
    session: u128,
    request: u64,
    token: u64,
    reason: EndReason,
) -> Event {
    Event::HoldEnded {
        name: name(lock),
        session: SessionId(session),
        request: RequestId(request),
        token: FenceToken(token),
        granted_at: LogicalTime::ZERO,
        reason,
    }
}

pub(super) fn queued(lock: &str, session: u128, request: u64) -> Event {
    queued_as(lock, session, request, Mode::Exclusive)
}

pub(super) fn queued_as(lock: &str, session: u128, request: u64, mode: Mode) -> Event {
    Event::Queued {
        name: name(lock),
        session: SessionId(session),
        request: RequestId(request),
        actor: ActorId(0),
        mode,
    }
}

pub(super) fn wait_ended(lock: &str, session: u128, request: u64, outcome: Outcome) -> Event {
    Event::WaitEnded {
        names: Names::One(name(lock)),
        session: SessionId(session),
        request: RequestId(request),
        outcome,
    }
}

pub(super) fn refused_as_deadlock(lock: &str, session: u128, request: u64) -> Event {
    Event::Refused {
        names: Names::One(name(lock)),
        session: SessionId(session),
        request: RequestId(request),
        outcome: Outcome::Deadlock(Box::default()),
    }
}

pub(super) fn opened(session: u128) -> Event {
    Event::SessionOpened {
        session: SessionId(session),
        public: PublicSessionId(session as u64),
        owner: Box::default(),
        principal: None,
    }
}

/// It has ended, and later entries end the rest of what it has.
pub(super) fn ending(session: u128, reason: EndReason) -> Event {
    Event::SessionEnding {
        session: SessionId(session),
        public: PublicSessionId(session as u64),
        reason,
    }
}

pub(super) fn ended(session: u128, reason: EndReason) -> Event {
    Event::SessionEnded {
        session: SessionId(session),
        public: PublicSessionId(session as u64),
        reason,
    }
}
