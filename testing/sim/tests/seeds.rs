//! Whole runs, short enough for a build without optimisation.

use std::time::Duration;

use holdfast_core::{Outcome, Rejection};
use holdfast_sim::history::Output;
use holdfast_sim::{CommandKind, FaultKind, Options, Origin, run_with};

fn minutes(minutes: u64) -> Options {
    Options { length: Duration::from_secs(minutes * 60), ..Options::default() }
}

#[test]
fn twenty_seeds_break_no_promise() {
    for seed in 1..=20 {
        let report = run_with(seed, minutes(2));
        assert_eq!(report.violations, [], "seed {seed}");
        assert!(report.operations > 100, "seed {seed} did only {} operations", report.operations);
    }
}

#[test]
fn runs_with_several_groups_break_no_promise_and_use_all_of_them() {
    let (mut wrong_groups, mut several_groups, mut losses) = (0, 0, 0);
    let all = Options::default().faults;
    let some = &[FaultKind::GroupQuorumLoss, FaultKind::Crash];
    for (seed, groups, faults) in [(1, 2, all), (2, 3, all), (3, 4, all), (4, 2, all), (5, 3, some)]
    {
        let report = run_with(seed, Options { groups: Some(groups), faults, ..minutes(3) });
        assert_eq!(report.violations, [], "seed {seed}");
        assert_eq!(report.histories.len(), groups as usize);
        losses += report.faults.get(&FaultKind::GroupQuorumLoss).copied().unwrap_or_default();
        for history in &report.histories {
            assert!(history.operations.len() > 50, "seed {seed}: {}", history.operations.len());
            for operation in &history.operations {
                let Some((_, Output::Outcome(Outcome::Rejected(rejection)))) = &operation.returned
                else {
                    continue;
                };
                wrong_groups += u64::from(matches!(rejection, Rejection::WrongGroup { .. }));
                several_groups += u64::from(matches!(rejection, Rejection::SeveralGroups { .. }));
            }
        }
    }
    assert!(wrong_groups > 0 && several_groups > 0, "{wrong_groups}, {several_groups}");
    assert!(losses > 0, "no group has lost its quorum");
}

#[test]
fn some_seeds_have_one_group_and_some_have_several() {
    let groups: Vec<usize> = (1..=20)
        .map(|seed| {
            let length = Duration::from_secs(1);
            run_with(seed, Options { length, faults: &[], ..Options::default() }).groups
        })
        .collect();
    let singles = groups.iter().filter(|groups| **groups == 1).count();
    assert!((10..20).contains(&singles), "{groups:?}");
    assert!(groups.iter().all(|groups| (1..=4).contains(groups)));
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_another() {
    let digest = |seed| run_with(seed, minutes(2)).trace_digest;
    assert_eq!(digest(7), digest(7));
    let with = |groups| run_with(7, Options { groups: Some(groups), ..minutes(2) }).trace_digest;
    assert_eq!(with(3), with(3));
    assert_ne!(with(3), with(1));
    assert_ne!(digest(7), digest(8));
}

#[test]
fn reading_along_changes_nothing() {
    let aloud = Options { readable: true, coverage: true, ..minutes(2) };
    let (quiet, aloud) = (run_with(9, minutes(2)), run_with(9, aloud));
    assert_eq!(quiet.trace_digest, aloud.trace_digest);
    assert!(quiet.lines.is_empty() && !aloud.lines.is_empty());
}

/// A command that no run ever contains has no place in the workload.
#[test]
fn every_command_takes_part() {
    let mut seen = [0; CommandKind::ALL.len()];
    // Where there are several groups, they adopt the policy of the root group.
    let divided = Options { groups: Some(2), ..minutes(3) };
    let runs = (1..=12).map(|seed| (seed, minutes(3))).chain((13..=18).map(|seed| (seed, divided)));
    for (seed, options) in runs {
        let report = run_with(seed, Options { coverage: true, ..options });
        let coverage = report.coverage.unwrap_or_default();
        for (count, command) in seen.iter_mut().zip(CommandKind::ALL) {
            *count += coverage.total(command);
        }
    }
    for (count, command) in seen.into_iter().zip(CommandKind::ALL) {
        // The clients here have streams, and a front end that serves unary calls is not simulated.
        if matches!(command.origin(), Origin::UnaryCall | Origin::Unsent) {
            continue;
        }
        assert!(count > 0, "no run contains {}", command.name());
    }
    assert!(CommandKind::ALL.iter().any(|command| command.origin() == Origin::Leader));
}
