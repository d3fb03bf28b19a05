//! `run`: many seeds, each judged.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

use super::seeds::{Seeds, complain};

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    seeds: Seeds,
    /// Begin with a seed that was never run before, and say which.
    #[arg(long, conflicts_with = "start")]
    fresh: bool,
}

impl Run {
    pub(crate) fn execute(mut self) -> io::Result<ExitCode> {
        let started = Instant::now();
        if self.fresh {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            // Runs that begin a second apart share no seed.
            self.seeds.start = since_1970.as_secs() * 1_000_000;
            let Seeds { seeds, start, .. } = &self.seeds;
            writeln!(io::stderr(), "fresh seeds; the same again: --seeds {seeds} --start {start}")?;
        }
        let (mut done, mut operations, mut faults, mut violations) = (0u64, 0, 0, 0);
        let mut simulated = Duration::ZERO;
        let mut bad_seeds = Vec::new();
        let options = self.seeds.options();
        self.seeds.run(options, |report| {
            done += 1;
            simulated += report.simulated;
            operations += report.operations;
            faults += report.faults.values().sum::<u64>();
            violations += report.violations.len();
            if !report.violations.is_empty() {
                bad_seeds.push(report.seed);
                complain(&report, options)?;
            }
            if done.is_multiple_of(50) {
                let (hours, passed) = (simulated.as_secs_f64() / 3_600.0, started.elapsed());
                let seeds = self.seeds.seeds;
                writeln!(io::stderr(), "{done}/{seeds} seeds, {hours:.1} h in {passed:.1?}")?;
            }
            Ok(())
        })?;
        let hours = simulated.as_secs_f64() / 3_600.0;
        writeln!(
            io::stdout(),
            "seeds={done} simulated_hours={hours:.1} operations={operations} faults={faults} \
             violations={violations}"
        )?;
        if bad_seeds.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        bad_seeds.sort_unstable();
        writeln!(io::stderr(), "seeds with violations: {bad_seeds:?}")?;
        Ok(ExitCode::FAILURE)
    }
}
