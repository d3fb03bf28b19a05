//! Many seeds, on one thread or several; the results come in whatever order they are ready.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use holdfast_sim::{FaultKind, Options, RunReport, run_with};

#[derive(Debug, Args)]
pub(crate) struct Seeds {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    pub(crate) seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    pub(crate) start: u64,
    /// How long things go wrong in each, in simulated minutes.
    #[arg(long, default_value_t = 20)]
    pub(crate) minutes: u64,
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// How many groups each node runs; by the seed if it is not given.
    #[arg(long)]
    pub(crate) groups: Option<u32>,
    #[command(flatten)]
    faults: ChosenFaults,
}

/// What may go wrong.
#[derive(Debug, Args)]
pub(crate) struct ChosenFaults {
    /// Only these kinds of faults go wrong; one that is named twice is twice as frequent.
    #[arg(long, value_delimiter = ',', value_name = "FAULT,…", value_parser = fault_kind)]
    faults: Vec<FaultKind>,
}

impl ChosenFaults {
    /// They last as long as the process.
    pub(crate) fn kinds(&self) -> &'static [FaultKind] {
        match self.faults.is_empty() {
            true => &FaultKind::ALL,
            false => self.faults.clone().leak(),
        }
    }
}

fn fault_kind(name: &str) -> Result<FaultKind, String> {
    FaultKind::named(name).ok_or_else(|| {
        let names: Vec<&str> = FaultKind::ALL.into_iter().map(FaultKind::name).collect();
        format!("there is no such fault; choose from {}", names.join(", "))
    })
}

impl Seeds {
    pub(crate) fn options(&self) -> Options {
        let length = Duration::from_secs(self.minutes * 60);
        Options { length, groups: self.groups, faults: self.faults.kinds(), ..Options::default() }
    }

    /// Runs them all; `each` sees every report once.
    pub(crate) fn run(
        &self,
        options: Options,
        mut each: impl FnMut(RunReport) -> io::Result<()>,
    ) -> io::Result<()> {
        let next = AtomicU64::new(self.start);
        let end = self.start + self.seeds;
        let (reports, finished) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                let (next, reports) = (&next, reports.clone());
                scope.spawn(move || {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end || reports.send(run_with(seed, options)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(reports);
            finished.into_iter().try_for_each(&mut each)
        })
    }
}

/// Says what is wrong with a seed, and how to see it again.
pub(crate) fn complain(report: &RunReport, options: Options) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for violation in report.violations.iter().take(10) {
        writeln!(err, "seed {}: {}: {}", report.seed, violation.checker, violation.what)?;
    }
    if report.violations.len() > 10 {
        writeln!(err, "seed {}: and {} more", report.seed, report.violations.len() - 10)?;
    }
    writeln!(err, "  see it again: {}", replay_command(report.seed, options))
}

/// The command that shows a seed again.
pub(crate) fn replay_command(seed: u64, options: Options) -> String {
    let minutes = options.length.as_secs() / 60;
    let groups = options.groups.map(|groups| format!(" --groups {groups}")).unwrap_or_default();
    let faults = match options.faults == FaultKind::ALL {
        true => String::new(),
        false => {
            let names: Vec<&str> = options.faults.iter().map(|kind| kind.name()).collect();
            format!(" --faults {}", names.join(","))
        }
    };
    format!(
        "cargo run --profile optimised -p holdfast-sim -- replay --seed {seed} --minutes {minutes}{groups}{faults}"
    )
}
