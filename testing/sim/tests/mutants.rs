//! Teeth: the simulation finds bugs that are planted, and finds nothing where none is. All of them:
//! `holdfast-sim mutants`. Only one bug can be active in a process, so this is one test.

use std::time::Duration;

use holdfast_sim::planted::Mutant;
use holdfast_sim::{Options, run_with};

fn first_bad_seed(seeds_max: u64) -> Option<u64> {
    let options = Options { length: Duration::from_secs(2 * 60), ..Options::default() };
    (1..=seeds_max).find(|seed| !run_with(*seed, options).violations.is_empty())
}

#[test]
fn planted_bugs_are_found_and_their_absence_is_clean() {
    for name in ["last-in-first-out", "answer-before-commit", "no-sync"] {
        let mutant = Mutant::named(name).unwrap();
        let activated = mutant.activate();
        assert!(first_bad_seed(5).is_some(), "{name} was not found");
        drop(activated);
    }
    assert_eq!(first_bad_seed(5), None);
}
