//! Does a long queue cost more per operation than a short one?
//!
//! Measures, with queues of 64 and of 100,000 waiters on one lock, what it takes to take in the next waiter
//! (with the search for cycles), and to hand the lock over. Both sizes in turn, several rounds, medians; the
//! ratio is what counts.
//!
//! `cargo run --profile optimised -p holdfast-core --example long_queue`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a program for people")]

mod world;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use holdfast_core::command::{Acquire, Mode, Policy, Terms};
use holdfast_core::{ActorId, Command, FenceToken, LockName, Outcome, Span};
use world::World;

const SHORT: u64 = 64;
const LONG: u64 = 100_000;
const OPERATIONS: u64 = 20_000;
const ROUNDS: usize = 7;
/// Each holds something and waits with many actors, so that there is something to search.
const SESSIONS: u64 = 100;

struct Line {
    world: World,
    /// Who waits, in order.
    queue: VecDeque<u64>,
    joined: u64,
    name: LockName,
    holder: (u64, FenceToken),
}

impl Line {
    fn of(length: u64) -> Line {
        // A millisecond passes between two commands.
        let mut world = World::new(SESSIONS, 1);
        for session in 0..SESSIONS {
            world.acquire(session, LockName::new(&format!("own-{session}")).unwrap());
        }
        let name = LockName::new("hot").unwrap();
        let holder = (0, world.acquire(0, name.clone()));
        let mut line = Line { world, queue: VecDeque::new(), joined: 0, name, holder };
        for _ in 0..length {
            line.join();
        }
        line
    }

    /// Each time as another actor.
    fn join(&mut self) {
        let session = self.joined % SESSIONS;
        self.joined += 1;
        let call = self.world.call(session);
        let wait = Span::from_secs(3_600);
        let outcome = self.world.apply(Command::Acquire(Acquire {
            call,
            actor: ActorId(call.request.0),
            name: self.name.clone(),
            mode: Mode::Exclusive,
            terms: Terms { wait, policy: Policy::Detect, ..Terms::default() },
        }));
        assert!(matches!(outcome, Outcome::Queued { .. }), "{outcome:?}");
        self.queue.push_back(session);
    }

    fn hand_over(&mut self) {
        let (session, token) = self.holder;
        let next = FenceToken(self.world.table.last_token() + 1);
        self.world.release(session, self.name.clone(), token);
        assert_eq!(self.world.table.last_token(), next.0, "no client got the lock");
        self.holder = (self.queue.pop_front().unwrap(), next);
    }
}

/// One that joins and one hand-over, so that the queue keeps its length.
fn measure(line: &mut Line) -> (Duration, Duration) {
    let (mut joining, mut handing_over) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..OPERATIONS {
        let start = Instant::now();
        line.join();
        let joined = Instant::now();
        line.hand_over();
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
    let (mut short, mut long) = (Line::of(SHORT), Line::of(LONG));
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
