//! `coverage`: which commands were on their way during which faults.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use holdfast_sim::{CommandKind, Coverage, FaultKind, Options};

use super::seeds::{Seeds, complain};

#[derive(Debug, Args)]
pub(crate) struct CoverageOf {
    #[command(flatten)]
    seeds: Seeds,
}

impl CoverageOf {
    pub(crate) fn execute(self) -> io::Result<ExitCode> {
        let options = Options { coverage: true, ..self.seeds.options() };
        let mut total = Coverage::default();
        let mut violations = 0;
        self.seeds.run(options, |report| {
            total.add(&report.coverage.clone().unwrap_or_default());
            violations += report.violations.len();
            if report.violations.is_empty() { Ok(()) } else { complain(&report, options) }
        })?;
        print(&total)?;
        let missing = total.missing();
        for (fault, command) in &missing {
            writeln!(io::stderr(), "no {} was on its way during {}", command.name(), fault.name())?;
        }
        let is_complete = missing.is_empty() && violations == 0;
        Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn print(coverage: &Coverage) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{:16}", "")?;
    for command in CommandKind::ALL {
        write!(out, " {:>10}", command.name())?;
    }
    writeln!(out)?;
    for fault in FaultKind::ALL {
        write!(out, "{:16}", fault.name())?;
        for command in CommandKind::ALL {
            write!(out, " {:>10}", coverage.count(fault, command))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
