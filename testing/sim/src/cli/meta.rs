//! `meta`: does the same seed give the same run?

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use holdfast_sim::run_with;

use super::seeds::Seeds;

#[derive(Debug, Args)]
pub(crate) struct Meta {
    #[command(flatten)]
    seeds: Seeds,
}

impl Meta {
    pub(crate) fn execute(self) -> io::Result<ExitCode> {
        let options = self.seeds.options();
        let mut differing = 0u64;
        self.seeds.run(options, |first| {
            let second = run_with(first.seed, options);
            if first.trace_digest != second.trace_digest {
                differing += 1;
                writeln!(
                    io::stderr(),
                    "seed {}: {:016x}, then {:016x}",
                    first.seed,
                    first.trace_digest,
                    second.trace_digest
                )?;
            }
            Ok(())
        })?;
        writeln!(io::stdout(), "seeds={} differing={differing}", self.seeds.seeds)?;
        Ok(if differing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
