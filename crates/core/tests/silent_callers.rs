//! Sessions that never say that they have their answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use holdfast_core::command::{Acquire, Call, HoldRef, Mode, OpenSession, Owner, Terms};
use holdfast_core::{
    ActorId, Command, FenceToken, Grant, Limits, LockName, LockTable, LogIndex, LogicalTime,
    Outcome, PublicSessionId, Rejection, RequestId, SessionId, Span,
};

const SESSION: SessionId = SessionId(1);

struct World {
    table: LockTable,
    index: u64,
}

impl World {
    fn new() -> World {
        let limits =
            Limits { unacknowledged_answers_max: 64, silent_answers_kept: 32, ..Limits::default() };
        let mut world = World { table: LockTable::new(limits), index: 0 };
        let open = OpenSession {
            session: SESSION,
            public: PublicSessionId(1),
            stream: None,
            ttl: Span::from_secs(30),
            linger: Span::from_secs(30),
            owner: Owner::default(),
            identity: None,
        };
        world.apply(Command::OpenSession(open));
        world
    }

    fn apply(&mut self, mut command: Command) -> Outcome {
        self.table.acknowledge_for_silent_caller(&mut command);
        self.index += 1;
        let outcome = self.table.apply(
            LogIndex(self.index),
            LogicalTime::from_ms(self.index),
            command,
            &mut Vec::new(),
        );
        self.table.check().unwrap();
        outcome
    }

    fn acquire(&mut self, request: u64) -> Outcome {
        let acquire = Acquire {
            call: call(request),
            actor: ActorId(0),
            name: name(),
            mode: Mode::Exclusive,
            terms: Terms::default(),
        };
        self.apply(Command::Acquire(acquire))
    }

    fn release(&mut self, request: u64, token: FenceToken) -> Outcome {
        let hold = HoldRef { name: name(), token, acquire: RequestId(0) };
        self.apply(Command::Release { call: call(request), hold })
    }
}

fn name() -> LockName {
    LockName::new("wallet").unwrap()
}

fn call(request: u64) -> Call {
    Call { session: SESSION, request: RequestId(request), acked_through: RequestId(0) }
}

fn token(outcome: &Outcome) -> FenceToken {
    match outcome {
        Outcome::Granted(Grant { token, .. }) => *token,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn rising_ids_go_on_for_ever_and_a_retry_is_never_carried_out_twice() {
    for gap in [1_u64, 1_000_000_007] {
        let mut world = World::new();
        let mut granted = Vec::new();
        for pair in 0..500 {
            let id = (2 * pair + 1) * gap;
            let outcome = world.acquire(id);
            granted.push((id, token(&outcome)));
            world.release(id + gap, token(&outcome));
        }
        let last_token = world.table.last_token();
        for (at, (id, _)) in granted.iter().enumerate() {
            let expected = if at < 450 {
                vec![Rejection::AnswerDiscarded]
            } else {
                vec![Rejection::AnswerDiscarded, Rejection::GrantEnded]
            };
            match world.acquire(*id) {
                Outcome::Rejected(rejection) => assert!(expected.contains(&rejection), "{id}"),
                other => panic!("request {id} was carried out again: {other:?}"),
            }
        }
        // The newest are still known.
        let (id, _) = granted.last().unwrap();
        assert_eq!(world.acquire(*id), Outcome::Rejected(Rejection::GrantEnded));
        assert_eq!(world.table.last_token(), last_token);
    }
}

#[test]
fn ids_in_no_order_are_refused_when_the_room_is_used_up_and_none_is_carried_out_twice() {
    let mut world = World::new();
    // The highest comes first: what follows is never the newest.
    let ids: Vec<u64> = (1..200).rev().collect();
    let mut carried_out = 0;
    for id in &ids {
        match world.acquire(*id) {
            Outcome::Granted(_) | Outcome::Busy => carried_out += 1,
            other => assert_eq!(other, Outcome::Rejected(Rejection::TooManyUnacknowledged)),
        }
    }
    assert_eq!(carried_out, 64);
    let last_token = world.table.last_token();
    for id in &ids {
        world.acquire(*id);
    }
    assert_eq!(world.table.last_token(), last_token);
}

#[test]
fn a_caller_that_acknowledges_keeps_its_own_mark() {
    let mut world = World::new();
    for id in 1..=63 {
        world.acquire(id);
    }
    let mut said = Command::Release {
        call: Call { acked_through: RequestId(5), ..call(64) },
        hold: HoldRef { name: name(), token: FenceToken(1), acquire: RequestId(0) },
    };
    let before = said.clone();
    world.table.acknowledge_for_silent_caller(&mut said);
    assert_eq!(said, before);
}
