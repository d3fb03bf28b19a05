//! A table with sessions that have an hour, and what they ask of it: for the programs that measure.

#![allow(dead_code, reason = "not every program needs all of it")]

use holdfast_core::command::{Acquire, Call, HoldRef, Mode, OpenSession, Owner, Terms};
use holdfast_core::{
    ActorId, Command, Event, FenceToken, Limits, LockName, LockTable, LogIndex, LogicalTime,
    Outcome, PublicSessionId, RequestId, RulesVersion, SessionId, Span,
};

pub(crate) struct World {
    pub(crate) table: LockTable,
    pub(crate) events: Vec<Event>,
    index: u64,
    commands_per_ms: u64,
    /// The last request of each session.
    requests: Vec<u64>,
}

impl World {
    pub(crate) fn new(sessions: u64, commands_per_ms: u64) -> World {
        let mut world = World {
            table: LockTable::with_rules(Limits::default(), RulesVersion::NEWEST),
            events: Vec::new(),
            index: 0,
            commands_per_ms,
            requests: vec![0; sessions as usize],
        };
        for session in 0..sessions {
            let public = PublicSessionId(session);
            world.apply(opening(session_id(session), public, Span::from_secs(3_600)));
        }
        world
    }

    pub(crate) fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        self.apply_at(LogicalTime::from_ms(self.index / self.commands_per_ms), command)
    }

    pub(crate) fn apply_at(&mut self, at: LogicalTime, command: Command) -> Outcome {
        self.events.clear();
        self.table.apply(LogIndex(self.index), at, command, &mut self.events)
    }

    /// The client has the answers to everything before.
    pub(crate) fn call(&mut self, session: u64) -> Call {
        let next = &mut self.requests[session as usize];
        *next += 1;
        let (session, request) = (session_id(session), RequestId(*next));
        Call { session, request, acked_through: RequestId(*next - 1) }
    }

    /// What is free.
    pub(crate) fn acquire(&mut self, session: u64, name: LockName) -> FenceToken {
        let call = self.call(session);
        let mode = Mode::Exclusive;
        let acquire = Acquire { call, actor: ActorId(0), name, mode, terms: Terms::default() };
        match self.apply(Command::Acquire(acquire)) {
            Outcome::Granted(grant) => grant.token,
            other => unreachable!("{other:?}"),
        }
    }

    pub(crate) fn release(&mut self, session: u64, name: LockName, token: FenceToken) {
        let call = self.call(session);
        let hold = HoldRef { name, token, acquire: RequestId(0) };
        self.apply(Command::Release { call, hold });
    }
}

pub(crate) fn session_id(session: u64) -> SessionId {
    SessionId(u128::from(session) + 1)
}

pub(crate) fn opening(session: SessionId, public: PublicSessionId, ttl: Span) -> Command {
    let owner = Owner::default();
    Command::OpenSession(OpenSession {
        session,
        public,
        stream: None,
        ttl,
        linger: ttl,
        owner,
        identity: None,
    })
}

/// 20 bytes.
pub(crate) fn name(number: u64) -> LockName {
    LockName::new(&format!("wallet:user_{number:08}")).unwrap()
}
