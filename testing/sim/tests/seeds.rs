//! Whole runs, short enough for a build without optimisation.

use std::time::Duration;

use holdfast_sim::{CommandKind, Options, Origin, run_with};

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
fn the_same_seed_is_the_same_run_and_another_is_another() {
    let digest = |seed| run_with(seed, minutes(2)).trace_digest;
    assert_eq!(digest(7), digest(7));
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
    for seed in 1..=12 {
        let report = run_with(seed, Options { coverage: true, ..minutes(3) });
        let coverage = report.coverage.unwrap_or_default();
        for (count, command) in seen.iter_mut().zip(CommandKind::ALL) {
            *count += coverage.total(command);
        }
    }
    for (count, command) in seen.into_iter().zip(CommandKind::ALL) {
        // The clients here have streams, and a front end that serves unary calls is not simulated.
        if command.origin() == Origin::UnaryCall {
            continue;
        }
        assert!(count > 0, "no run contains {}", command.name());
    }
    assert!(CommandKind::ALL.iter().any(|command| command.origin() == Origin::Leader));
}
