//! Many seeds, on one thread or several; the results come in whatever order they are ready.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use holdfast_sim::{Options, RunReport, run_with};

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
}

impl Seeds {
    pub(crate) fn options(&self) -> Options {
        let length = Duration::from_secs(self.minutes * 60);
        Options { length, groups: self.groups, ..Options::default() }
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
pub(crate) fn complain(report: &RunReport, minutes: u64) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for violation in report.violations.iter().take(10) {
        writeln!(err, "seed {}: {}: {}", report.seed, violation.checker, violation.what)?;
    }
    if report.violations.len() > 10 {
        writeln!(err, "seed {}: and {} more", report.seed, report.violations.len() - 10)?;
    }
    writeln!(
        err,
        "  see it again: cargo run --release -p holdfast-sim -- replay --seed {} --minutes {minutes}",
        report.seed
    )
}
