//! What one acquire and release cost the table, empty and with half a million other locks held.
//!
//! `cargo run --release -p holdfast-core --example speed`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a program for people")]

use std::time::{Duration, Instant};

use holdfast_core::command::{Acquire, Call, HoldRef, Mode, OpenSession, Owner, Terms};
use holdfast_core::{
    ActorId, Command, Event, FenceToken, Limits, LockName, LockTable, LogIndex, LogicalTime,
    Outcome, PublicSessionId, RequestId, SessionId, Span,
};

const HELD: u64 = 500_000;
const SESSIONS: u64 = 100;
const MANY_SESSIONS: u64 = 1_000_000;
const PAIRS: u64 = 200_000;
const ROUNDS: usize = 5;

struct World {
    table: LockTable,
    index: u64,
    requests: Vec<u64>,
    events: Vec<Event>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            table: LockTable::new(Limits::default()),
            index: 0,
            requests: vec![0; SESSIONS as usize],
            events: Vec::new(),
        };
        for session in 0..SESSIONS {
            world.apply(Command::OpenSession(OpenSession {
                session: SessionId(u128::from(session) + 1),
                public: PublicSessionId(session),
                stream: None,
                ttl: Span::from_secs(3_600),
                linger: Span::from_secs(3_600),
                owner: Owner::default(),
            }));
        }
        world
    }

    fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let (index, now) = (LogIndex(self.index), LogicalTime::from_ms(self.index / 100));
        self.events.clear();
        self.table.apply(index, now, command, &mut self.events)
    }

    /// The client has the answers to everything before.
    fn call(&mut self, session: u64) -> Call {
        let next = &mut self.requests[session as usize];
        *next += 1;
        let (session, request) = (SessionId(u128::from(session) + 1), RequestId(*next));
        Call { session, request, acked_through: RequestId(*next - 1) }
    }

    fn acquire(&mut self, session: u64, name: LockName) -> FenceToken {
        let call = self.call(session);
        let mode = Mode::Exclusive;
        let acquire = Acquire { call, actor: ActorId(0), name, mode, terms: Terms::default() };
        match self.apply(Command::Acquire(acquire)) {
            Outcome::Granted(grant) => grant.token,
            other => unreachable!("{other:?}"),
        }
    }

    fn release(&mut self, session: u64, name: LockName, token: FenceToken) {
        let call = self.call(session);
        let hold = HoldRef { name, token, acquire: RequestId(0) };
        self.apply(Command::Release { call, hold });
    }

    /// The best of some rounds: the others were disturbed.
    fn pairs(&mut self, what: &str) {
        let mut best = Duration::MAX;
        for round in 0..ROUNDS as u64 {
            // Two names for each pair: what arrives over the wire is never the table's own copy.
            let names: Vec<[LockName; 2]> =
                (0..PAIRS).map(|pair| [0; 2].map(|_| pair_name(round * PAIRS + pair))).collect();
            let started = Instant::now();
            for (pair, [first, second]) in names.into_iter().enumerate() {
                let session = pair as u64 % SESSIONS;
                let token = self.acquire(session, first);
                self.release(session, second, token);
            }
            best = best.min(started.elapsed());
        }
        println!("{what}: {} ns for an acquire and its release", best.as_nanos() / PAIRS as u128);
    }
}

/// In no order that the table could profit from.
fn pair_name(number: u64) -> LockName {
    name(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
}

fn name(number: u64) -> LockName {
    LockName::new(&format!("wallet:user_{number:08}")).unwrap()
}

/// A million sessions that end in the same moment, a bounded number in each tick.
fn mass_expiry() {
    let mut world = World::new();
    let started = Instant::now();
    for number in 0..MANY_SESSIONS {
        // Ids are random.
        let id = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        world.apply(Command::OpenSession(OpenSession {
            session: SessionId(id | 1 << 127),
            public: PublicSessionId(id as u64),
            stream: None,
            ttl: Span::from_secs(180),
            linger: Span::from_secs(180),
            owner: Owner::default(),
        }));
    }
    println!("{MANY_SESSIONS} sessions opened: {} ns each", per(started, MANY_SESSIONS));
    let started = Instant::now();
    let (mut ticks, mut longest) = (0, Duration::ZERO);
    while world.table.session_count() > SESSIONS as usize {
        let tick = Instant::now();
        let (index, now) = (LogIndex(world.index), LogicalTime::from_ms(1_000_000));
        world.events.clear();
        world.table.apply(index, now, Command::Tick, &mut world.events);
        ticks += 1;
        longest = longest.max(tick.elapsed());
    }
    let each = per(started, MANY_SESSIONS);
    println!("ended in {ticks} ticks: {each} ns for each session, longest tick {longest:?}");
}

fn per(started: Instant, count: u64) -> u128 {
    started.elapsed().as_nanos() / u128::from(count)
}

fn main() {
    mass_expiry();
    let mut world = World::new();
    world.pairs("empty table");
    let started = Instant::now();
    let mut tokens = Vec::new();
    for number in 0..HELD {
        // Beside those of the pairs, which end on a digit.
        let held = LockName::new(&format!("wallet:user_{:08}x", number * 33)).unwrap();
        tokens.push((held.clone(), world.acquire(number % SESSIONS, held)));
    }
    println!("{HELD} acquired: {} ns each", per(started, HELD));
    world.pairs("500,000 held");
    let started = Instant::now();
    for (number, (name, token)) in (0..HELD).zip(tokens) {
        world.release(number % SESSIONS, name, token);
    }
    println!("{HELD} released: {} ns each", per(started, HELD));
}
