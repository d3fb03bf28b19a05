//! One run: everything from one seed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::best_effort;
use crate::check::{self, ExpiryBound, Promises};
use crate::coverage::Coverage;
use crate::fault::FaultKind;
use crate::history::{History, RealTime, Violation};
use crate::options::Options;
use crate::recorder::Recorder;
use crate::world::World;

/// What came of a seed.
#[derive(Debug)]
pub struct RunReport {
    pub seed: u64,
    pub simulated: Duration,
    pub operations: u64,
    pub faults: BTreeMap<FaultKind, u64>,
    /// A number made of everything that happened.
    pub trace_digest: u64,
    pub violations: Vec<Violation>,
    /// Empty unless it was asked for.
    pub lines: Vec<String>,
    pub coverage: Option<Coverage>,
    /// How many groups each node ran.
    pub groups: usize,
    /// Of each group, and of the last cluster that there was.
    pub histories: Vec<History>,
}

/// Runs a seed as usual.
pub fn run(seed: u64) -> RunReport {
    run_with(seed, Options::default())
}

pub fn run_with(seed: u64, options: Options) -> RunReport {
    let mut world = World::new(seed, options);
    let length = RealTime(options.length.as_micros() as u64);
    let whole = AssertUnwindSafe(|| {
        world.run_until(length);
        world.settle();
    });
    if catch_unwind(whole).is_err() {
        let what = format!("the simulation panicked at {} s", world.now.0 / 1_000_000);
        world.recorder.violation("panic", what);
    }
    let now = world.now;
    world.recorder.all().for_each(|recorder| recorder.finish(now));
    let mut violations = std::mem::take(&mut world.recorder.violations);
    let promises = promises(&world);
    let mut operations = 0;
    let changes_in_root = world.recorder.root_history().changes_of_policy();
    for recorder in world.recorder.all().skip(1) {
        recorder.history.changes_in_root.clone_from(&changes_in_root);
    }
    for recorder in world.recorder.all() {
        operations += judge(recorder, &promises, &mut violations);
    }
    let histories = world.recorder.into_histories();
    violations.extend(check::groups::check(&histories));
    violations.extend(best_effort::check(seed));
    RunReport {
        seed,
        simulated: Duration::from_micros(world.now.0),
        operations,
        faults: world.faults,
        trace_digest: world.trace.digest(),
        violations,
        lines: world.trace.take_lines(),
        coverage: world.coverage,
        groups: histories.len(),
        histories,
    }
}

/// Runs the checkers over each cluster that there was. Gives the number of operations.
fn judge(recorder: &mut Recorder, promises: &Promises, violations: &mut Vec<Violation>) -> u64 {
    let mut count = 0;
    let mut leftovers = Vec::new();
    for epoch in recorder.epochs.iter_mut().chain([&mut recorder.history]) {
        count += epoch.operations.iter().filter(|operation| operation.returned.is_some()).count();
        if epoch.beginning.is_some() {
            leftovers.push(check::restore::set_apart(epoch));
        }
        violations.extend(check::check_with(epoch, promises));
    }
    let unanswered = recorder.history.operations.iter();
    count += unanswered.filter(|operation| operation.returned.is_none()).count();
    let after = recorder.epochs.iter().skip(1).chain([&recorder.history]);
    for (number, (after, leftovers)) in after.zip(&leftovers).enumerate() {
        let before = &recorder.epochs[..=number];
        violations.extend(check::restore::check(before, after, leftovers));
    }
    count as u64
}

/// What this cluster promises, with its settings.
fn promises(world: &World) -> Promises {
    let settings = &world.plan.settings;
    let bound = ExpiryBound {
        // A new leader grants it once, and a leader that stalled once more.
        grace_ms: 2 * settings.grace.as_ms(),
        tick_ms: settings.tick.as_millis() as u64,
        // What leaders hear is recorded.
        delivery_ms: 0,
    };
    Promises { expiry_bound: Some(bound), ..Promises::default() }
}
