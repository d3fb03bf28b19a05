//! A lock table with people in it, for tests that tell a story.
//!
//! Sessions are called by first names. After every command the table's own invariants are checked.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;

use holdfast_core::command::{Acquire, Call, HoldRef, Mode, OpenSession, Owner, Policy, Terms};
use holdfast_core::{
    ActorId, Command, Event, FenceToken, Limits, LockName, LockTable, LogIndex, LogicalTime,
    MapEpoch, MoveId, Outcome, PublicSessionId, RequestId, RulesVersion, SessionId, SlotSet, Span,
    StreamId,
};

pub(crate) struct World {
    /// Of the group that the story is about at present.
    pub(crate) table: LockTable,
    pub(crate) limits: Limits,
    pub(crate) now: LogicalTime,
    /// Of the last command.
    pub(crate) events: Vec<Event>,
    index: u64,
    names: Vec<String>,
    /// The number of the present group.
    pub(crate) group: u64,
    /// The other groups of the story, with the index of the last entry of each.
    others: BTreeMap<u64, (LockTable, u64)>,
    /// The moves of slots so far.
    pub(crate) moves: Vec<MoveId>,
}

impl World {
    pub(crate) fn new(limits: Limits) -> World {
        World::with_rules(limits, RulesVersion::NEWEST)
    }

    pub(crate) fn with_rules(limits: Limits, rules: RulesVersion) -> World {
        World {
            table: LockTable::with_rules(limits.clone(), rules),
            limits,
            now: LogicalTime::ZERO,
            events: Vec::new(),
            index: 0,
            names: Vec::new(),
            group: 1,
            others: BTreeMap::new(),
            moves: Vec::new(),
        }
    }

    pub(crate) fn apply(&mut self, command: Command) -> Outcome {
        self.events.clear();
        self.index += 1;
        let outcome = self.table.apply(LogIndex(self.index), self.now, command, &mut self.events);
        self.table.check().expect("the table contradicts itself");
        outcome
    }

    pub(crate) fn at(&mut self, ms: u64) -> &mut World {
        self.now = LogicalTime::from_ms(ms);
        self
    }

    /// The story goes on in this group. A new one owns no slot.
    pub(crate) fn go_to_group(&mut self, number: u64) {
        let (table, index) = self.others.remove(&number).unwrap_or_else(|| {
            let mut table = LockTable::with_rules(self.limits.clone(), self.table.rules());
            let own = Command::SetOwnership { epoch: MapEpoch(1), slots: SlotSet::empty() };
            table.apply(LogIndex(1), self.now, own, &mut Vec::new());
            (table, 1)
        });
        let before = std::mem::replace(&mut self.table, table);
        self.others.insert(self.group, (before, self.index));
        (self.group, self.index) = (number, index);
    }

    /// The table of another group.
    pub(crate) fn table_of(&self, number: u64) -> Option<&LockTable> {
        self.others.get(&number).map(|(table, _)| table)
    }

    /// `alice@2` is the guest of alice by the move of epoch 2.
    pub(crate) fn session(&mut self, name: &str) -> SessionId {
        if let Some((name, epoch)) = name.rsplit_once('@') {
            let epoch = MapEpoch(epoch.parse().unwrap());
            let id = self.moves.iter().find(|id| id.epoch == epoch).copied().unwrap();
            return id.guest(self.session(name));
        }
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
        let position = self.names.iter().position(|known| known == name).unwrap();
        SessionId(position as u128 + 1)
    }

    pub(crate) fn name_of(&self, session: SessionId) -> String {
        self.name_within(session, 2).expect("a session of the story")
    }

    /// The guest of a guest is the session again.
    fn name_within(&self, session: SessionId, moves_max: usize) -> Option<String> {
        let number = usize::try_from(session.0).ok().and_then(|number| number.checked_sub(1));
        if let Some(name) = number.and_then(|number| self.names.get(number)) {
            return Some(name.clone());
        }
        let moves_max = moves_max.checked_sub(1)?;
        self.moves.iter().find_map(|id| {
            let name = self.name_within(id.guest(session), moves_max)?;
            Some(format!("{name}@{}", id.epoch))
        })
    }

    pub(crate) fn call(&mut self, name: &str, request: u64) -> Call {
        Call {
            session: self.session(name),
            request: RequestId(request),
            acked_through: RequestId(0),
        }
    }

    pub(crate) fn opening(&mut self, name: &str, ttl: Span) -> OpenSession {
        let session = self.session(name);
        OpenSession {
            session,
            public: PublicSessionId(session.0 as u64),
            stream: None,
            ttl,
            linger: ttl,
            owner: Owner { application: name.to_owned(), ..Owner::default() },
            identity: None,
        }
    }

    pub(crate) fn open(&mut self, name: &str, ttl_ms: u64) -> Outcome {
        let open = self.opening(name, Span::from_ms(ttl_ms));
        self.apply(Command::OpenSession(open))
    }

    pub(crate) fn acquiring(
        &mut self,
        name: &str,
        request: u64,
        lock: &str,
        wait_ms: u64,
    ) -> Acquire {
        Acquire {
            call: self.call(name, request),
            actor: ActorId(0),
            name: lock_name(lock),
            mode: Mode::Exclusive,
            terms: Terms { wait: Span::from_ms(wait_ms), policy: Policy::Wait, ..Terms::default() },
        }
    }

    pub(crate) fn acquire(
        &mut self,
        name: &str,
        request: u64,
        lock: &str,
        wait_ms: u64,
    ) -> Outcome {
        let acquire = self.acquiring(name, request, lock, wait_ms);
        self.apply(Command::Acquire(acquire))
    }

    pub(crate) fn release(&mut self, name: &str, request: u64, lock: &str, token: u64) -> Outcome {
        let call = self.call(name, request);
        self.apply(Command::Release { call, hold: hold(lock, token) })
    }

    pub(crate) fn renew(&mut self, name: &str, request: u64, lock: &str, token: u64) -> Outcome {
        let call = self.call(name, request);
        self.apply(Command::Renew { call, hold: hold(lock, token), ttl: None })
    }

    pub(crate) fn cancel(&mut self, name: &str, request: u64, target: u64) -> Outcome {
        let call = self.call(name, request);
        self.apply(Command::Cancel { call, target: RequestId(target) })
    }

    pub(crate) fn touch(&mut self, name: &str, acked_through: u64) -> Outcome {
        let session = self.session(name);
        self.apply(Command::Touch { session, acked_through: RequestId(acked_through) })
    }

    pub(crate) fn close(&mut self, name: &str) -> Outcome {
        let session = self.session(name);
        self.apply(Command::CloseSession { session })
    }

    pub(crate) fn detach(&mut self, name: &str, stream: u64) -> Outcome {
        let session = self.session(name);
        self.apply(Command::DetachStream { session, stream: StreamId(stream) })
    }

    pub(crate) fn tick(&mut self) -> Outcome {
        self.apply(Command::Tick)
    }

    pub(crate) fn begin_term(&mut self, grace_ms: u64) -> Outcome {
        self.apply(Command::BeginTerm { grace: Span::from_ms(grace_ms) })
    }

    /// The application names of those who hold a lock.
    pub(crate) fn holder(&self, lock: &str) -> Option<String> {
        let status = self.table.status(lock, 2);
        assert!(status.holders.len() <= 1, "two holders of {lock}");
        status.holders.into_iter().next().map(|holder| holder.owner.application)
    }

    pub(crate) fn waiters(&self, lock: &str) -> Vec<String> {
        let status = self.table.status(lock, usize::MAX);
        assert_eq!(status.waiters.len(), status.waiter_count);
        status.waiters.into_iter().map(|waiter| waiter.owner.application).collect()
    }
}

pub(crate) fn lock_name(text: &str) -> LockName {
    LockName::new(text).expect("a valid lock name")
}

/// The hold of a lock under this token.
pub(crate) fn hold(lock: &str, token: u64) -> HoldRef {
    HoldRef { name: lock_name(lock), token: FenceToken(token), acquire: RequestId(0) }
}

/// The token of a grant.
pub(crate) fn token(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Granted(grant) => grant.token.0,
        other => panic!("not granted: {other:?}"),
    }
}
