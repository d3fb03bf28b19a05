//! How many log entries it takes to take out what is in slots that move.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod world;

use holdfast_core::command::Mode;
use holdfast_core::{Command, GroupNumber, Limits, MapEpoch, MoveId, MoveStep, Slot, SlotSet};

use crate::world::{World, lock_name};

const READERS: usize = 60;
const FOREIGN_LOCKS: usize = 200;
/// One entry can pass by all foreign locks and take some readers out.
const STEPS: usize = FOREIGN_LOCKS + 16;

#[test]
fn an_entry_does_not_pass_by_foreign_locks_again_that_another_one_has_passed() {
    let limits = Limits { move_steps_max: STEPS, ..Limits::default() };
    let mut world = World::new(limits);
    world.open("alice", 60_000);
    for lock in 0..FOREIGN_LOCKS {
        world.acquire("alice", 1 + lock as u64, &format!("foreign/{lock}"), 0);
    }
    for reader in 0..READERS {
        let name = format!("reader {reader}");
        world.open(&name, 60_000);
        let mut acquire = world.acquiring(&name, 1, "read", 0);
        acquire.mode = Mode::Shared;
        world.apply(Command::Acquire(acquire));
    }
    let slots: SlotSet = [Slot::of("read")].into_iter().collect();
    let moves_along = |lock: usize| slots.contains(Slot::of(&format!("foreign/{lock}")));
    assert!(!(0..FOREIGN_LOCKS).any(moves_along) && lock_name("foreign/0") < lock_name("read"));
    let id = MoveId { source: GroupNumber(1), epoch: MapEpoch(5) };
    world.apply(Command::from(MoveStep::Seal { id, target: GroupNumber(2), slots }));
    let mut entries = 1;
    while world.table.moves().outgoing().unwrap().complete().is_none() {
        world.apply(Command::Tick);
        entries += 1;
    }
    // A reader costs eight steps.
    let needed = (FOREIGN_LOCKS + 8 * READERS).div_ceil(STEPS);
    assert!(entries <= needed + 1, "{entries} entries for {needed}");
}
