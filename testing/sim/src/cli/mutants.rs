//! `mutants`: plants one bug after the other, and shows that each is found.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast_sim::planted::{ALL, Mutant};
use holdfast_sim::{FaultKind, Options, run_with};

use super::seeds::replay_command;

#[derive(Debug, Args)]
pub(crate) struct Mutants {
    /// Plant only this one.
    #[arg(long)]
    bug: Option<String>,
    /// Seeds from 1 on within which a bug must be found.
    #[arg(long, default_value_t = 400)]
    seeds: u64,
    /// How long things go wrong in each, in simulated minutes.
    #[arg(long, default_value_t = 5)]
    minutes: u64,
}

/// How a bug was found.
struct Finding {
    seed: u64,
    /// All checkers that found something in this seed.
    checkers: Vec<&'static str>,
    what: String,
}

impl Mutants {
    pub(crate) fn execute(self) -> io::Result<ExitCode> {
        let chosen: Vec<&Mutant> = match &self.bug {
            None => ALL.iter().collect(),
            Some(name) => Mutant::named(name).into_iter().collect(),
        };
        let mut out = io::stdout();
        if chosen.is_empty() {
            writeln!(out, "no such bug; there are:")?;
            for mutant in ALL {
                writeln!(out, "  {}", mutant.name)?;
            }
            return Ok(ExitCode::FAILURE);
        }
        // A bug may make a replica panic; that is found too, and needs no words of its own.
        std::panic::set_hook(Box::new(|_| {}));
        let (mut escaped, mut last_seed) = (0, 1);
        let mut caught_by: BTreeMap<&str, u64> = BTreeMap::new();
        writeln!(out, "| bug | planted in | caught by | seeds |\n|---|---|---|---|")?;
        for mutant in &chosen {
            let started = Instant::now();
            let (by, seeds) = match self.find(mutant) {
                Some(finding) => {
                    for checker in &finding.checkers {
                        *caught_by.entry(checker).or_default() += 1;
                    }
                    last_seed = last_seed.max(finding.seed);
                    if self.bug.is_some() {
                        writeln!(io::stderr(), "{}", finding.what)?;
                    }
                    (finding.checkers.join(", "), finding.seed.to_string())
                }
                None => {
                    escaped += 1;
                    last_seed = self.seeds;
                    ("**no checker**".to_owned(), format!("> {}", self.seeds))
                }
            };
            writeln!(out, "| {} | `{}` | {by} | {seeds} |", mutant.name, mutant.place)?;
            writeln!(io::stderr(), "{}: {:.1?}", mutant.name, started.elapsed())?;
        }
        let found = chosen.len() - escaped;
        writeln!(out, "\n{found} of {} bugs found; by {caught_by:?}", chosen.len())?;
        let mut tried = vec![&FaultKind::ALL[..]];
        for mutant in &chosen {
            if !tried.contains(&mutant.faults) {
                tried.push(mutant.faults);
            }
        }
        let mut clean = true;
        for faults in tried {
            let found = (1..=last_seed).find_map(|seed| self.violation(seed, faults));
            if let Some(Finding { seed, what, .. }) = &found {
                let again = replay_command(*seed, self.options(faults));
                writeln!(io::stderr(), "seed {seed}: {what}\n  see it again: {again}")?;
            }
            clean &= found.is_none();
        }
        let verdict = if clean { "no violation" } else { "VIOLATIONS" };
        writeln!(out, "without a bug, seeds 1 to {last_seed}: {verdict}")?;
        Ok(if escaped == 0 && clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn find(&self, mutant: &Mutant) -> Option<Finding> {
        let _activated = mutant.activate();
        (1..=self.seeds).find_map(|seed| self.violation(seed, mutant.faults))
    }

    fn options(&self, faults: &'static [FaultKind]) -> Options {
        let length = Duration::from_secs(self.minutes * 60);
        Options { length, faults, ..Options::default() }
    }

    /// What is found in one run.
    fn violation(&self, seed: u64, faults: &'static [FaultKind]) -> Option<Finding> {
        let report = run_with(seed, self.options(faults));
        let mut checkers: Vec<_> = report.violations.iter().map(|found| found.checker).collect();
        checkers.sort_unstable();
        checkers.dedup();
        let what = report.violations.into_iter().next()?.what;
        Some(Finding { seed, checkers, what })
    }
}
