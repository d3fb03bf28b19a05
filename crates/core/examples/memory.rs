//! What a held lock costs, and what is left when it is given back.
//!
//! `cargo run --profile optimised -p holdfast-core --example memory`

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    unsafe_code,
    reason = "it is a program for people"
)]

mod world;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use world::{World, name};

/// Counts the bytes that live.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator, as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const LOCKS: u64 = 500_000;
const SESSIONS: u64 = 100;
const PAIRS: u64 = 1_000_000;

fn live() -> isize {
    LIVE.load(Ordering::Relaxed)
}

fn main() {
    assert_eq!(name(0).len(), 20);
    let mut world = World::new(SESSIONS, 1_000);
    // Every client has been here once, so that what a session keeps for ever does not count as left behind.
    for session in 0..SESSIONS {
        let token = world.acquire(session, name(session));
        world.release(session, name(session), token);
    }
    let before = live();
    let mut tokens = Vec::with_capacity(LOCKS as usize);
    let room_for_tokens = live() - before;
    for number in 0..LOCKS {
        tokens.push(world.acquire(number % SESSIONS, name(number)));
    }
    let held = live() - before - room_for_tokens;
    println!("{LOCKS} locks of {SESSIONS} sessions: {} bytes each", held / LOCKS as isize);
    for (number, token) in (0..LOCKS).zip(&tokens) {
        world.release(number % SESSIONS, name(number), *token);
    }
    drop(tokens);
    let left = live() - before;
    println!("given back: {left} bytes are left, {:.3} % of what they took", percent(left, held));

    let before = live();
    for number in 0..PAIRS {
        let session = number % SESSIONS;
        let token = world.acquire(session, name(number + LOCKS));
        world.release(session, name(number + LOCKS), token);
    }
    let left = live() - before;
    println!(
        "{PAIRS} names taken and given back: {left} bytes are left, {:.3} % of {before}",
        percent(left, before)
    );
}

fn percent(part: isize, whole: isize) -> f64 {
    part as f64 * 100.0 / whole as f64
}
