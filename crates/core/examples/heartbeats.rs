//! What a heartbeat costs the table if there are 100,000 sessions, and a call touches a thousand of them.
//!
//! Between two calls other memory is used, as a node does: what it finds in its caches is not the sessions.
//!
//! `cargo run --profile optimised -p holdfast-core --example heartbeats`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a program for people")]

mod world;

use std::hint::black_box;
use std::time::{Duration, Instant};

use holdfast_core::{Command, LogicalTime, PublicSessionId, RequestId, SessionId, Span};
use world::{World, opening};

const CONNECTIONS: usize = 100;
const SESSIONS_EACH: usize = 1_000;
const ROUNDS: u64 = 5;
const BETWEEN_CALLS_MS: u64 = 100;
/// More than the caches of one core.
const OTHER_BYTES: usize = 16 << 20;

/// Random, as clients choose them.
fn id(number: usize) -> SessionId {
    let mixed = (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    SessionId((mixed ^ mixed >> 59).wrapping_mul(0xda94_2042_e4dd_58b5_2360_ed05_1fc6_5da5))
}

fn main() {
    let mut world = World::new(0, 100);
    let mut connections = vec![Vec::new(); CONNECTIONS];
    for number in 0..CONNECTIONS * SESSIONS_EACH {
        let session = id(number);
        connections[number % CONNECTIONS].push(session);
        let public = PublicSessionId(session.0 as u64);
        world.apply(opening(session, public, Span::from_secs(30)));
    }
    connections.iter_mut().for_each(|sessions| sessions.sort_unstable());
    let mut other = vec![0_u8; OTHER_BYTES];
    let mut now = world.table.now().as_ms();
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let mut spent = Duration::ZERO;
        for sessions in &connections {
            other.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            black_box(&mut other);
            now += BETWEEN_CALLS_MS;
            let began = Instant::now();
            for session in sessions {
                let touch = Command::Touch { session: *session, acked_through: RequestId(0) };
                world.apply_at(LogicalTime::from_ms(now), touch);
            }
            spent += began.elapsed();
        }
        assert_eq!(world.table.session_count(), CONNECTIONS * SESSIONS_EACH);
        best = best.min(spent);
    }
    let each = best.as_nanos() / (CONNECTIONS * SESSIONS_EACH) as u128;
    println!("{each} ns a heartbeat, in the best of {ROUNDS} rounds");
}
