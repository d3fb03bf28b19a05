//! A table on which everything is tried out: who holds what and who waits is kept from the events, and
//! whether a wait ever ends is found by letting every client finish that can.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::command::{Call, HoldRef, OpenSession, Owner};
use holdfast_core::{
    ActorId, Command, Event, FenceToken, Limits, LockName, LockTable, LogIndex, LogicalTime,
    Outcome, PublicSessionId, RequestId, RulesVersion, SessionId, Span,
};

pub(crate) type Actor = (SessionId, ActorId);

/// By which a wait, or the hold that it became, is known.
pub(crate) type Asked = (SessionId, RequestId);

#[derive(Clone)]
pub(crate) struct Play {
    table: LockTable,
    applied: u64,
    pub(crate) holds: BTreeMap<(LockName, Asked), Hold>,
    pub(crate) waits: BTreeMap<Asked, ActorId>,
    /// Waits that the last command has ended as in a deadlock.
    pub(crate) refused_late: Vec<Asked>,
}

#[derive(Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) actor: ActorId,
    pub(crate) token: FenceToken,
}

impl Play {
    pub(crate) fn among(sessions: u64) -> Play {
        let mut play = Play {
            table: LockTable::with_rules(Limits::default(), RulesVersion::NEWEST),
            applied: 0,
            holds: BTreeMap::new(),
            waits: BTreeMap::new(),
            refused_late: Vec::new(),
        };
        for number in 1..=sessions {
            let (ttl, owner) = (Span::from_secs(3_600), Owner::default());
            let (session, public) = (SessionId(number.into()), PublicSessionId(number));
            let open = OpenSession {
                session,
                public,
                stream: None,
                ttl,
                linger: ttl,
                owner,
                identity: None,
            };
            play.apply(Command::OpenSession(open));
        }
        play
    }

    pub(crate) fn apply(&mut self, command: Command) -> Outcome {
        self.applied += 1;
        let mut events = Vec::new();
        let index = LogIndex(self.applied);
        let outcome = self.table.apply(index, LogicalTime::ZERO, command, &mut events);
        self.table.check().expect("the table contradicts itself");
        self.refused_late.clear();
        for event in events {
            self.follow(event);
        }
        outcome
    }

    fn follow(&mut self, event: Event) {
        match event {
            Event::Granted { name, session, request, actor, token, .. } => {
                self.holds.insert((name, (session, request)), Hold { actor, token });
            }
            Event::Converted { name, session, request, token, .. } => {
                let hold = self.holds.get_mut(&(name, (session, request)));
                hold.expect("a hold that is known").token = token;
            }
            Event::Released { name, session, request, .. }
            | Event::HoldEnded { name, session, request, .. } => {
                self.holds.remove(&(name, (session, request)));
            }
            Event::Queued { session, request, actor, .. } => {
                self.waits.insert((session, request), actor);
            }
            Event::WaitEnded { session, request, outcome, .. } => {
                self.waits.remove(&(session, request));
                if let Outcome::Deadlock(_) = outcome {
                    self.refused_late.push((session, request));
                }
            }
            _ => {}
        }
    }

    /// The next request of a session.
    pub(crate) fn call(&self, session: SessionId) -> Call {
        Call { session, request: RequestId(self.applied + 1), acked_through: RequestId(0) }
    }

    /// Those whose waits never end, though every client that waits for nothing gives back what it holds.
    pub(crate) fn stuck(&self) -> BTreeSet<Actor> {
        let mut play = self.clone();
        loop {
            let waiting = play.waiting();
            let mut holds = play.holds.iter();
            let free =
                holds.find(|((_, (session, _)), hold)| !waiting.contains(&(*session, hold.actor)));
            let Some(((name, (session, acquire)), hold)) = free else { return waiting };
            let meant = HoldRef { name: name.clone(), token: hold.token, acquire: *acquire };
            let call = play.call(*session);
            let outcome = play.apply(Command::Release { call, hold: meant });
            assert!(matches!(outcome, Outcome::Release(_)), "{outcome:?}");
        }
    }

    fn waiting(&self) -> BTreeSet<Actor> {
        self.waits.iter().map(|((session, _), actor)| (*session, *actor)).collect()
    }
}
