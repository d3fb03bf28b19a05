//! The limits of the whole table: what adds to it is refused before they are passed, what gives back always works, and
//! the bytes are those that a new count finds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use holdfast_core::command::{
    Acquire, AcquireAll, Action, Call, HoldRef, Intervention, Member, Mode, OpenSession, Owner,
    Terms,
};
use holdfast_core::{
    ActorId, Command, FenceToken, Grant, Intervened, Limits, LockName, LockTable, LogIndex,
    LogicalTime, NAME_BYTES_MAX, Outcome, PublicSessionId, Rejection, ReleaseAnswer, RequestId,
    RulesVersion, SessionId, Span, TableLimits,
};
use proptest::prelude::*;

const KIB: u64 = 1 << 10;

struct World {
    table: LockTable,
    index: u64,
    last_request: u64,
    held: Vec<(SessionId, LockName, FenceToken)>,
}

impl World {
    fn new(rules: RulesVersion) -> World {
        let table = LockTable::with_rules(Limits::default(), rules);
        World { table, index: 0, last_request: 0, held: Vec::new() }
    }

    fn limited(bytes: u64, locks: u64) -> World {
        let mut world = World::new(RulesVersion::TWO);
        assert_eq!(world.set_limits(Some(bytes), Some(locks)), LIMITS_SET);
        world
    }

    fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let (index, at) = (LogIndex(self.index), LogicalTime::from_ms(self.index * 10));
        let outcome = self.table.apply(index, at, command, &mut Vec::new());
        self.table.check().unwrap();
        outcome
    }

    fn set_limits(&mut self, bytes: Option<u64>, locks: Option<u64>) -> Outcome {
        self.apply(Command::Intervene(Intervention {
            by: "olga".into(),
            reason: "test".into(),
            action: Action::SetLimits { bytes, locks },
            identity: None,
        }))
    }

    fn open(&mut self, number: u64) -> Outcome {
        self.apply(Command::OpenSession(OpenSession {
            session: session(number),
            public: PublicSessionId(number),
            stream: None,
            ttl: Span::from_secs(3_600),
            linger: Span::from_secs(3_600),
            owner: Owner { note: "n".repeat(200), ..Owner::default() },
            identity: None,
        }))
    }

    fn call(&mut self, number: u64) -> Call {
        self.last_request += 1;
        Call {
            session: session(number),
            request: RequestId(self.last_request),
            acked_through: RequestId(self.last_request.saturating_sub(1)),
        }
    }

    fn acquire(&mut self, number: u64, name: &str, wait_ms: u64, metadata: usize) -> Outcome {
        let call = self.call(number);
        let outcome = self.apply(Command::Acquire(Acquire {
            call,
            actor: ActorId(0),
            name: lock_name(name),
            mode: Mode::Exclusive,
            terms: terms(wait_ms, metadata),
        }));
        if let Outcome::Granted(Grant { name, token, .. }) = &outcome {
            self.held.push((session(number), name.clone(), *token));
        }
        outcome
    }

    fn acquire_all(&mut self, number: u64, names: &[&str]) -> Outcome {
        let call = self.call(number);
        let member = |name: &&str| Member { name: lock_name(name), mode: Mode::Exclusive };
        self.apply(Command::AcquireAll(AcquireAll {
            call,
            actor: ActorId(0),
            members: names.iter().map(member).collect(),
            terms: terms(0, 0),
        }))
    }

    fn release(&mut self, session: SessionId, name: LockName, token: FenceToken) -> Outcome {
        let call = Call { session, ..self.call(0) };
        let hold = HoldRef { name, token, acquire: RequestId(0) };
        self.apply(Command::Release { call, hold })
    }
}

const LIMITS_SET: Outcome = Outcome::Intervened(Intervened::LimitsSet);

fn session(number: u64) -> SessionId {
    SessionId(u128::from(number))
}

fn lock_name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

fn terms(wait_ms: u64, metadata: usize) -> Terms {
    Terms {
        wait: Span::from_ms(wait_ms),
        metadata: vec![7; metadata].into_boxed_slice(),
        ..Terms::default()
    }
}

fn is_full(outcome: &Outcome) -> bool {
    use Rejection::{SessionTooLarge, TooManyBytes, TooManyLocks};
    matches!(
        outcome,
        Outcome::Rejected(TooManyLocks { .. } | TooManyBytes { .. } | SessionTooLarge { .. })
    )
}

#[test]
fn a_lock_too_many_is_refused_and_one_that_is_there_can_be_awaited() {
    let mut world = World::limited(1 << 20, 3);
    world.open(1);
    world.open(2);
    for name in ["a", "b", "c"] {
        assert!(matches!(world.acquire(1, name, 0, 0), Outcome::Granted(_)), "{name}");
    }
    let refused = Outcome::Rejected(Rejection::TooManyLocks { limit: 3 });
    assert_eq!(world.acquire(2, "d", 1_000, 0), refused);
    assert_eq!(world.acquire_all(2, &["a", "d"]), refused);
    assert!(matches!(world.acquire(2, "a", 1_000, 0), Outcome::Queued { .. }));

    // A way out: raise the limit.
    assert_eq!(world.set_limits(None, Some(4)), LIMITS_SET);
    assert!(matches!(world.acquire(2, "d", 0, 0), Outcome::Granted(_)));
    // Another one: release.
    assert!(is_full(&world.acquire(2, "e", 0, 0)));
    let (session, name, token) = world.held[1].clone();
    world.release(session, name, token);
    assert!(matches!(world.acquire(2, "e", 0, 0), Outcome::Granted(_)));
}

#[test]
fn in_a_full_table_an_operator_breaks_a_lock_and_makes_room_for_another() {
    let mut world = World::limited(64 * KIB, 1_000);
    let sessions = 1..10;
    sessions.clone().for_each(|number| drop(world.open(number)));
    let mut names = (0..).map(|number| format!("lock {number}"));
    for number in sessions {
        while !is_full(&world.acquire(number, &names.next().unwrap(), 0, 1_000)) {}
    }
    let bytes = Outcome::Rejected(Rejection::TooManyBytes { limit: 64 * KIB });
    assert_eq!(world.acquire(9, "one more", 0, 1_000), bytes);
    let (_, name, token) = world.held.last().cloned().unwrap();
    let broken = world.apply(Command::Intervene(Intervention {
        identity: None,
        by: "olga".into(),
        reason: "test".into(),
        action: Action::Break { name, token: Some(token) },
    }));
    assert!(matches!(broken, Outcome::Intervened(Intervened::Broken { .. })), "{broken:?}");
    assert!(matches!(world.acquire(9, "one more", 0, 900), Outcome::Granted(_)));
}

#[test]
fn a_refusal_at_the_limit_takes_no_room_and_the_same_request_may_come_again() {
    let mut world = World::limited(1 << 20, 1);
    world.open(1);
    world.acquire(1, "a", 0, 0);
    let before = world.table.size_bytes();
    let call = world.call(1);
    let request = Command::Acquire(Acquire {
        call: Call { acked_through: RequestId(0), ..call },
        actor: ActorId(0),
        name: lock_name("b"),
        mode: Mode::Exclusive,
        terms: Terms::default(),
    });
    assert!(is_full(&world.apply(request.clone())));
    assert_eq!(world.table.size_bytes(), before);
    world.set_limits(None, Some(2));
    assert!(matches!(world.apply(request), Outcome::Granted(_)));
}

#[test]
fn what_one_session_has_takes_no_more_than_a_quarter_of_the_bytes() {
    let mut world = World::limited(256 * KIB, 1_000_000);
    world.open(1);
    world.open(2);
    let refusal = (0..1_000)
        .map(|number| world.acquire(1, &format!("lock {number}"), 0, 1_000))
        .find(|outcome| !matches!(outcome, Outcome::Granted(_)));
    assert_eq!(refusal, Some(Outcome::Rejected(Rejection::SessionTooLarge { limit: 64 * KIB })));
    assert!(world.table.size_bytes() < 80 * KIB);
    assert!(matches!(world.acquire(2, "other", 0, 1_000), Outcome::Granted(_)));
}

/// The longest names, for which the entries of locks are largest compared with their holds.
#[test]
fn with_the_entries_of_its_locks_one_session_takes_less_than_half_of_the_bytes() {
    let limit = 1 << 20;
    let mut world = World::limited(limit, 1_000_000);
    world.open(1);
    let refusal = (0..10_000)
        .map(|number| world.acquire(1, &format!("{number:0>NAME_BYTES_MAX$}"), 0, 0))
        .find(|outcome| !matches!(outcome, Outcome::Granted(_)));
    let too_large = Rejection::SessionTooLarge { limit: limit / 4 };
    assert_eq!(refusal, Some(Outcome::Rejected(too_large)));
    let taken = world.table.size_bytes();
    assert!((limit / 3..limit / 2).contains(&taken), "{taken}");
}

#[test]
fn a_table_of_the_first_rules_has_no_limits() {
    let mut world = World::new(RulesVersion::ONE);
    world.open(1);
    // Not in a log of such rules; it must not matter.
    world.set_limits(Some(64 * KIB), Some(1));
    for number in 0..100 {
        let outcome = world.acquire(1, &format!("lock {number}"), 0, 1_000);
        assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
    }
    assert!(world.table.size_bytes() > 64 * KIB);
}

#[test]
fn the_limits_are_in_the_snapshot_and_the_bytes_are_counted_again() {
    let mut world = World::limited(512 * KIB, 77);
    world.open(1);
    world.acquire(1, "a", 0, 500);
    world.open(2);
    world.acquire(2, "a", 5_000, 300);
    let copy = LockTable::decode(&world.table.encode(), Limits::default()).unwrap();
    assert_eq!(copy.table_limits(), TableLimits { bytes: 512 * KIB, locks: 77 });
    assert_eq!(copy.size_bytes(), world.table.size_bytes());
    assert_eq!(copy.encode(), world.table.encode());
}

#[test]
fn impossible_limits_are_refused() {
    let mut world = World::new(RulesVersion::TWO);
    for (bytes, locks) in [
        (None, None),
        (Some(1), None),
        (Some(4 << 30), None),
        (None, Some(0)),
        (Some(1 << 30), Some(u64::MAX)),
    ] {
        let outcome = world.set_limits(bytes, locks);
        assert_eq!(outcome, Outcome::Rejected(Rejection::InvalidLimits), "{bytes:?} {locks:?}");
    }
}

#[derive(Clone, Debug)]
enum Move {
    Open { session: u64 },
    Acquire { session: u64, lock: u64, name: usize, wait_ms: u64, metadata: usize },
    Release { which: prop::sample::Index },
    Close { session: u64 },
    Kill { session: u64 },
    Tick,
}

fn a_move() -> impl Strategy<Value = Move> {
    let number = || 1_u64..7;
    prop_oneof![
        2 => number().prop_map(|session| Move::Open { session }),
        20 => (number(), 0_u64..60, 1_usize..400, prop_oneof![Just(0), 1_u64..2_000], 0_usize..1_024)
            .prop_map(|(session, lock, name, wait_ms, metadata)| {
                Move::Acquire { session, lock, name, wait_ms, metadata }
            }),
        5 => any::<prop::sample::Index>().prop_map(|which| Move::Release { which }),
        1 => number().prop_map(|session| Move::Close { session }),
        1 => number().prop_map(|session| Move::Kill { session }),
        2 => Just(Move::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_table_is_never_past_its_limits_and_a_release_always_works(
        moves in prop::collection::vec(a_move(), 1..250),
        kib in 64_u64..96,
        locks in 1_u64..50,
    ) {
        let mut world = World::limited(kib * KIB, locks);
        for step in moves {
            match step {
                Move::Open { session } => drop(world.open(session)),
                Move::Acquire { session, lock, name, wait_ms, metadata } => {
                    // The length belongs to the lock, so that sessions meet.
                    let name = format!("{lock:x>width$}", width = (lock as usize * 7 + name % 3) % 400 + 2);
                    world.acquire(session, &name, wait_ms, metadata);
                }
                Move::Release { which } if !world.held.is_empty() => {
                    let at = which.index(world.held.len());
                    let (session, name, token) = world.held.swap_remove(at);
                    let before = world.table.size_bytes();
                    let outcome = world.release(session, name, token);
                    prop_assert!(!is_full(&outcome), "{outcome:?}");
                    if outcome == Outcome::Release(ReleaseAnswer::Released) {
                        prop_assert!(world.table.size_bytes() <= before);
                    }
                }
                Move::Close { session: number } => {
                    let outcome = world.apply(Command::CloseSession { session: session(number) });
                    prop_assert!(!is_full(&outcome));
                }
                Move::Kill { session } => {
                    let outcome = world.apply(Command::Intervene(Intervention {
                        by: "olga".into(),
                        reason: "test".into(),
                        action: Action::KillSession { session: PublicSessionId(session) },
                        identity: None,
                    }));
                    prop_assert!(!is_full(&outcome));
                }
                Move::Tick | Move::Release { .. } => drop(world.apply(Command::Tick)),
            }
            prop_assert!(world.table.size_bytes() <= kib * KIB);
            prop_assert!(world.table.lock_count() as u64 <= locks);
        }
    }
}
