//! `replay`: one seed, told as it happens.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_sim::{Options, run_with};

use super::seeds::complain;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[arg(long)]
    seed: u64,
    /// How long things go wrong, in simulated minutes; as in the run that found it.
    #[arg(long, default_value_t = 20)]
    minutes: u64,
}

impl Replay {
    pub(crate) fn execute(self) -> io::Result<ExitCode> {
        let length = Duration::from_secs(self.minutes * 60);
        let report = run_with(self.seed, Options { length, readable: true, ..Options::default() });
        let mut out = BufWriter::new(io::stdout().lock());
        for line in &report.lines {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "trace digest {:016x}", report.trace_digest)?;
        out.flush()?;
        if report.violations.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        complain(&report, self.minutes)?;
        Ok(ExitCode::FAILURE)
    }
}
