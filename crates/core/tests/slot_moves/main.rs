//! Slots move between groups: random histories, judged from outside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod groups;
mod judge;

use std::collections::BTreeMap;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..ProptestConfig::default()
    })]

    #[test]
    fn holds_and_waits_survive_moves_and_no_lock_is_held_twice(seed in any::<u64>()) {
        groups::play(seed);
    }
}

#[test]
fn the_histories_have_everything_that_a_move_can_meet() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..100 {
        for (what, count) in groups::play(seed) {
            *seen.entry(what).or_default() += count;
        }
    }
    for what in [
        "sealed",
        "adopted",
        "adopted a later part",
        "committed",
        "aborted",
        "returned",
        "forgotten",
        "used a hold that had moved",
        "asked about a hold on its way",
        "cancelled a wait on its way",
        "asked again for a hold that had moved",
    ] {
        assert!(seen.get(what).is_some_and(|count| *count > 5), "{what}: {seen:?}");
    }
}
