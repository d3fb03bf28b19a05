//! Bugs that are planted into moves of slots, and that the random histories find. A binary of its own, because a planted
//! bug is in the whole process.

#![cfg(feature = "planted")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]
#![allow(dead_code, reason = "the histories count what they have seen for another test")]

#[path = "slot_moves/clients.rs"]
mod clients;
#[path = "slot_moves/groups.rs"]
mod groups;
#[path = "slot_moves/judge.rs"]
mod judge;

use std::panic::catch_unwind;

use holdfast_core::planted::{Bug, activate};

const SEEDS: u64 = 60;

#[test]
fn each_planted_bug_of_a_move_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let first_find = |bug| {
        activate(bug);
        let found = (0..SEEDS).find(|seed| catch_unwind(|| groups::play(*seed)).is_err());
        activate(None);
        found
    };
    let bugs = [
        Bug::GrantWhileSealed,
        Bug::CounterNotHandedOver,
        Bug::WaitersNotMoved,
        Bug::AdoptedTwice,
        Bug::MoveKeepsEpoch,
        Bug::ReturnBeforeAbort,
        Bug::MovedTimesNotShifted,
        Bug::DeparturesNotTold,
        Bug::DepartedRequestsForgotten,
    ];
    let missed: Vec<Bug> =
        bugs.into_iter().filter(|bug| first_find(Some(*bug)).is_none()).collect();
    let found_without = first_find(None);
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not found: {missed:?}");
    assert_eq!(found_without, None, "a seed fails without a bug");
}
