//! Random histories: what is recovered is what was acknowledged, plus at most the one turn that was not,
//! as a whole.

use std::io::ErrorKind;

use holdfast_wal::{GroupLog, HardState, Operation, Snapshot, WriteError};
use proptest::prelude::*;

use crate::common::Groups;
use crate::run::{Losses, Run, crashed, view};

#[derive(Clone, Debug)]
enum Step {
    Append { group: u32, back: u64, bytes: usize },
    HardState { group: u32, term: u64, vote: u64, commit: u64 },
    SyncTurn,
    Snapshot { group: u32, back: u64 },
    Install { group: u32, ahead: u64 },
    Spare,
    Reopen,
    CrashInCommit { moment: usize, keep: u64 },
    NoSpaceInCommit { operation: Operation, successes: u64 },
    SyncFailsInCommit { successes: u64, power_fails: bool, keep: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let group = 1_u32..4;
    prop_oneof![
        8 => (group.clone(), 0_u64..4, 0_usize..1500)
            .prop_map(|(group, back, bytes)| Step::Append { group, back, bytes }),
        3 => (group.clone(), 0_u64..2, 0_u64..4, 0_u64..6).prop_map(
            |(group, term, vote, commit)| Step::HardState { group, term, vote, commit }
        ),
        6 => Just(Step::SyncTurn),
        3 => (group.clone(), 0_u64..3).prop_map(|(group, back)| Step::Snapshot { group, back }),
        1 => (group, 0_u64..6).prop_map(|(group, ahead)| Step::Install { group, ahead }),
        1 => Just(Step::Spare),
        1 => Just(Step::Reopen),
        2 => (any::<usize>(), any::<u64>())
            .prop_map(|(moment, keep)| Step::CrashInCommit { moment, keep }),
        1 => (prop_oneof![Just(Operation::Write), Just(Operation::Create)], 0_u64..3).prop_map(
            |(operation, successes)| Step::NoSpaceInCommit { operation, successes }
        ),
        1 => (0_u64..2, any::<bool>(), any::<u64>()).prop_map(
            |(successes, power_fails, keep)| Step::SyncFailsInCommit { successes, power_fails, keep }
        ),
    ]
}

/// What the open turn makes of a group: hard state, snapshot index, last index.
fn position(groups: &Groups, group: u32) -> (HardState, u64, u64) {
    let Some(log) = groups.get(&group) else { return (HardState::default(), 0, 0) };
    let snapshot = log.snapshot.as_ref().map_or(0, |snapshot| snapshot.index);
    (log.hard_state, snapshot, log.entries.last().map_or(snapshot, |entry| entry.index))
}

fn term_at(log: &GroupLog, index: u64) -> Option<u64> {
    log.entries.iter().find(|entry| entry.index == index).map(|entry| entry.term)
}

fn perform(run: &mut Run, step: Step, number: usize) {
    match step {
        Step::Append { group, back, bytes } => {
            let (state, _, last) = position(&run.open, group);
            let committed = state.commit.max(position(&run.durable, group).0.commit);
            let index = (last + 1).saturating_sub(back).max(committed + 1).min(last + 1);
            run.append(group, index, state.term.max(1), &vec![number as u8; bytes]);
        }
        Step::HardState { group, term, vote, commit } => {
            let (state, _, last) = position(&run.open, group);
            let commit = (state.commit + commit).min(last).max(state.commit);
            run.set_hard_state(group, HardState { term: state.term + term, vote, commit });
        }
        Step::SyncTurn => run.sync_turn(),
        Step::Snapshot { group, back } => {
            let (state, snapshot, _) = position(&run.durable, group);
            let index = state.commit.saturating_sub(back);
            let term = run.durable.get(&group).and_then(|log| term_at(log, index));
            if let Some(term) = term.filter(|_| index > snapshot) {
                run.take_snapshot(group, &Snapshot { index, term, data: vec![number as u8; 700] });
            }
        }
        Step::Install { group, ahead } => {
            let (state, snapshot, _) = position(&run.open, group);
            let index = state.commit.max(snapshot + 1) + ahead;
            let term = state.term + 1;
            run.install_snapshot(group, &Snapshot { index, term, data: vec![number as u8; 700] });
        }
        Step::Spare => {
            if run.wal.spare_wanted() {
                let spare = run.wal.segment_preparer().prepare().unwrap();
                run.wal.add_spare(spare);
            }
        }
        Step::Reopen => run.reopen(run.disk.clone(), &[view(&run.durable)]),
        Step::CrashInCommit { moment, keep } => {
            run.disk.start_moments();
            run.wal.sync_turn().unwrap();
            let mut moments = run.disk.take_moments();
            if moments.is_empty() {
                moments.push(run.disk.clone());
            }
            let disk = crashed(&moments[moment % moments.len()], keep);
            run.reopen(disk, &[view(&run.durable), view(&run.open)]);
        }
        Step::NoSpaceInCommit { operation, successes } => {
            run.disk.fail_after(operation, successes, ErrorKind::StorageFull);
            let outcome = run.wal.sync_turn();
            run.disk.clear_faults();
            match outcome {
                Ok(()) => run.durable = run.open.clone(),
                Err(error) => assert!(matches!(error, WriteError::NoSpace { .. }), "{error}"),
            }
            run.sync_turn();
        }
        Step::SyncFailsInCommit { successes, power_fails, keep } => {
            run.disk.fail_after(Operation::SyncData, successes, ErrorKind::Other);
            let outcome = run.wal.sync_turn();
            run.disk.clear_faults();
            let allowed = match outcome {
                Ok(()) => vec![view(&run.open)],
                Err(error) => {
                    assert!(matches!(error, WriteError::Fatal(_)), "{error}");
                    assert_eq!(run.wal.sync_turn(), Err(error));
                    vec![view(&run.durable), view(&run.open)]
                }
            };
            let disk = if power_fails { crashed(&run.disk, keep) } else { run.disk.clone() };
            run.reopen(disk, &allowed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_acknowledged_write_is_recovered(
        steps in prop::collection::vec(step(), 1..40),
        seed in any::<u64>(),
    ) {
        let mut run = Run::new(Losses::Some { seed });
        for (number, step) in steps.into_iter().enumerate() {
            perform(&mut run, step, number);
        }
        run.sync_turn();
        run.reopen(run.disk.clone(), &[view(&run.durable)]);
    }
}
