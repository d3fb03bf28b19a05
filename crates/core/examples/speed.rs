//! What one acquire and release cost the table, empty and with half a million other locks held.
//!
//! `cargo run --profile optimised -p holdfast-core --example speed`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a program for people")]

mod world;

use std::time::{Duration, Instant};

use holdfast_core::{Command, LockName, LogicalTime, PublicSessionId, SessionId, Span};
use world::{World, name, opening};

const HELD: u64 = 500_000;
const SESSIONS: u64 = 100;
const MANY_SESSIONS: u64 = 1_000_000;
const PAIRS: u64 = 200_000;
const ROUNDS: usize = 5;

/// The best of some rounds: the others were disturbed.
fn pairs(world: &mut World, what: &str) {
    let mut best = Duration::MAX;
    for round in 0..ROUNDS as u64 {
        // Two names for each pair: what arrives over the wire is never the table's own copy.
        let names: Vec<[LockName; 2]> =
            (0..PAIRS).map(|pair| [0; 2].map(|_| pair_name(round * PAIRS + pair))).collect();
        let started = Instant::now();
        for (pair, [first, second]) in names.into_iter().enumerate() {
            let session = pair as u64 % SESSIONS;
            let token = world.acquire(session, first);
            world.release(session, second, token);
        }
        best = best.min(started.elapsed());
    }
    println!("{what}: {} ns for an acquire and its release", best.as_nanos() / PAIRS as u128);
}

/// In no order that the table could profit from.
fn pair_name(number: u64) -> LockName {
    name(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
}

/// A million sessions that end in the same moment, a bounded number in each tick.
fn mass_expiry() {
    let mut world = World::new(SESSIONS, 100);
    let started = Instant::now();
    for number in 0..MANY_SESSIONS {
        // Ids are random.
        let id = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let (session, public) = (SessionId(id | 1 << 127), PublicSessionId(id as u64));
        world.apply(opening(session, public, Span::from_secs(180)));
    }
    println!("{MANY_SESSIONS} sessions opened: {} ns each", per(started, MANY_SESSIONS));
    let started = Instant::now();
    let (mut ticks, mut longest) = (0, Duration::ZERO);
    while world.table.session_count() > SESSIONS as usize {
        let tick = Instant::now();
        world.apply_at(LogicalTime::from_ms(1_000_000), Command::Tick);
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
    let mut world = World::new(SESSIONS, 100);
    pairs(&mut world, "empty table");
    let started = Instant::now();
    let mut tokens = Vec::new();
    for number in 0..HELD {
        // Beside those of the pairs, which end on a digit.
        let held = LockName::new(&format!("wallet:user_{:08}x", number * 33)).unwrap();
        tokens.push((held.clone(), world.acquire(number % SESSIONS, held)));
    }
    println!("{HELD} acquired: {} ns each", per(started, HELD));
    pairs(&mut world, "500,000 held");
    let started = Instant::now();
    for (number, (name, token)) in (0..HELD).zip(tokens) {
        world.release(number % SESSIONS, name, token);
    }
    println!("{HELD} released: {} ns each", per(started, HELD));
}
