//! Does a long queue cost more per operation than a short one?
//!
//! Measures, with queues of 64 and of 100,000 waiters on one lock, what it takes to take in the next waiter
//! (with the search for cycles), and to hand the lock over. Both sizes in turn, several rounds, medians; the
//! ratio is what counts.
//!
//! `cargo run --release -p holdfast-core --example long_queue`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a program for people")]

use std::time::{Duration, Instant};

use holdfast_core::command::{Acquire, Call, HoldRef, Mode, OpenSession, Owner, Policy, Terms};
use holdfast_core::{
    ActorId, Command, Limits, LockName, LockTable, LogIndex, LogicalTime, Outcome, PublicSessionId,
    RequestId, SessionId, Span,
};

const SHORT: u64 = 64;
const LONG: u64 = 100_000;
const OPERATIONS: u64 = 20_000;
const ROUNDS: usize = 7;
/// Each holds something and waits with many actors, so that there is something to search.
const SESSIONS: u64 = 100;

struct World {
    table: LockTable,
    index: u64,
    next_request: Vec<u64>,
    /// Who waits, in order: session and actor are all that a waiter is here.
    queue: std::collections::VecDeque<u64>,
    name: LockName,
    holder: (u64, u64),
}

impl World {
    fn with_queue(length: u64) -> World {
        let mut world = World {
            table: LockTable::new(Limits::default()),
            index: 0,
            next_request: vec![0; SESSIONS as usize],
            queue: Default::default(),
            name: LockName::new("hot").unwrap(),
            holder: (0, 0),
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
            world.acquire(session, &format!("own-{session}"), 0);
        }
        let Outcome::Granted(grant) = world.acquire(0, "hot", 0) else { unreachable!() };
        world.holder = (0, grant.token.0);
        for _ in 0..length {
            world.join();
        }
        world
    }

    fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let mut events = Vec::new();
        // A millisecond passes between two commands.
        let at = LogicalTime::from_ms(self.index);
        self.table.apply(LogIndex(self.index), at, command, &mut events)
    }

    fn call(&mut self, session: u64) -> Call {
        let next = &mut self.next_request[session as usize];
        *next += 1;
        let (session, request) = (SessionId(u128::from(session) + 1), RequestId(*next));
        Call { session, request, acked_through: RequestId(*next - 1) }
    }

    fn acquire(&mut self, session: u64, name: &str, wait_s: u64) -> Outcome {
        let call = self.call(session);
        self.apply(Command::Acquire(Acquire {
            call,
            actor: ActorId(call.request.0),
            name: LockName::new(name).unwrap(),
            mode: Mode::Exclusive,
            terms: Terms {
                wait: Span::from_secs(wait_s),
                policy: Policy::Detect,
                ..Terms::default()
            },
        }))
    }

    fn join(&mut self) {
        let session = self.index % SESSIONS;
        let outcome = self.acquire(session, "hot", 3_600);
        assert!(matches!(outcome, Outcome::Queued { .. }), "{outcome:?}");
        self.queue.push_back(session);
    }

    fn hand_over(&mut self) {
        let (session, token) = self.holder;
        let call = self.call(session);
        let token_before = self.table.last_token();
        let (name, token) = (self.name.clone(), holdfast_core::FenceToken(token));
        let hold = HoldRef { name, token, acquire: RequestId(0) };
        self.apply(Command::Release { call, hold });
        assert_eq!(self.table.last_token(), token_before + 1, "nobody got the lock");
        self.holder = (self.queue.pop_front().unwrap(), token_before + 1);
    }
}

/// One that joins and one hand-over, so that the queue keeps its length.
fn measure(world: &mut World) -> (Duration, Duration) {
    let (mut joining, mut handing_over) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..OPERATIONS {
        let start = Instant::now();
        world.join();
        let joined = Instant::now();
        world.hand_over();
        joining += joined - start;
        handing_over += joined.elapsed();
    }
    (joining, handing_over)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let (mut short, mut long) = (World::with_queue(SHORT), World::with_queue(LONG));
    let (mut joins, mut hand_overs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (short_join, short_hand) = measure(&mut short);
        let (long_join, long_hand) = measure(&mut long);
        // The first warms up.
        if round > 0 {
            joins.push(long_join.as_secs_f64() / short_join.as_secs_f64());
            hand_overs.push(long_hand.as_secs_f64() / short_hand.as_secs_f64());
            let ns = |time: Duration| time.as_nanos() / u128::from(OPERATIONS);
            println!(
                "round {round}: take in {} ns of {SHORT}, {} ns of {LONG}; hand over {} ns, {} ns",
                ns(short_join),
                ns(long_join),
                ns(short_hand),
                ns(long_hand)
            );
        }
    }
    println!(
        "a queue of {LONG} against one of {SHORT}, medians of {ROUNDS} rounds: take in x{:.2}, hand over x{:.2}",
        median(joins),
        median(hand_overs)
    );
}
