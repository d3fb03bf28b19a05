//! What a snapshot of half a million held locks costs: to write it a slice at a time, and to read it back.
//!
//! `cargo run --profile optimised -p holdfast-core --example snapshot_cost`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a program for people")]

mod world;

use std::time::{Duration, Instant};

use holdfast_core::command::{Acquire, Mode, Terms};
use holdfast_core::{ActorId, Command, Limits, LockTable, RequestId};
use world::{World, name};

const HELD: u64 = 500_000;
const SESSIONS: u64 = 500;
/// As the shard asks for them.
const SLICE_ENTRIES: usize = 1_000;
const ROUNDS: usize = 3;

/// Sessions that have not said that they have their answers: those are in the snapshot too.
fn full() -> World {
    let mut world = World::new(SESSIONS, 100);
    for number in 0..HELD {
        let mut call = world.call(number * SESSIONS / HELD);
        call.acked_through = RequestId(0);
        let (name, mode) = (name(number), Mode::Exclusive);
        let acquire = Acquire { call, actor: ActorId(0), name, mode, terms: Terms::default() };
        world.apply(Command::Acquire(acquire));
    }
    world
}

fn main() {
    let mut world = full();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let (mut slices, mut longest) = (0, Duration::ZERO);
        world.table.begin_snapshot(&[]);
        let bytes = loop {
            let slice = Instant::now();
            let written = world.table.continue_snapshot(SLICE_ENTRIES);
            longest = longest.max(slice.elapsed());
            slices += 1;
            if let Some(bytes) = written {
                break bytes;
            }
        };
        let (took, size) = (begun.elapsed(), bytes.len());
        println!("written: {took:?}, {size} bytes, {slices} slices, the longest {longest:?}");

        let begun = Instant::now();
        let table = LockTable::decode(&bytes, Limits::default()).unwrap();
        let read = begun.elapsed();
        let begun = Instant::now();
        table.check().unwrap();
        let checked = begun.elapsed();
        let begun = Instant::now();
        drop(table);
        println!("read: {read:?}, of which checked {checked:?}; dropped {:?}", begun.elapsed());
    }
}
