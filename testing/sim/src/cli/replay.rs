//! `replay`: one seed, told as it happens.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_sim::{Options, run_with};

use super::seeds::{ChosenFaults, complain};

#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[arg(long)]
    seed: u64,
    /// How long things go wrong, in simulated minutes; as in the run that found it.
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// As in the run that found it.
    #[arg(long)]
    groups: Option<u32>,
    #[command(flatten)]
    faults: ChosenFaults,
}

impl Replay {
    pub(crate) fn execute(self) -> io::Result<ExitCode> {
        let length = Duration::from_secs(self.minutes * 60);
        let (groups, faults) = (self.groups, self.faults.kinds());
        let options = Options { length, groups, faults, readable: true, ..Options::default() };
        let report = run_with(self.seed, options);
        let mut out = BufWriter::new(io::stdout().lock());
        for line in &report.lines {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "trace digest {:016x}", report.trace_digest)?;
        out.flush()?;
        if report.violations.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        complain(&report, options)?;
        Ok(ExitCode::FAILURE)
    }
}
