//! `holdfast-sim`: runs seeds, replays one, shows what was covered, checks that seeds repeat.

mod cli;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "holdfast-sim", about = "Simulates whole Holdfast clusters, each from one seed")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run many seeds and judge each.
    Run(cli::run::Run),
    /// Run one seed and print what happens in it.
    Replay(cli::replay::Replay),
    /// Count which commands were on their way during which faults.
    Coverage(cli::coverage::CoverageOf),
    /// Run each seed twice; both must be the same to the last bit.
    Meta(cli::meta::Meta),
    /// Plant bugs, one after the other, and show that each is found.
    #[cfg(feature = "planted")]
    Mutants(cli::mutants::Mutants),
}

fn main() -> io::Result<ExitCode> {
    match Arguments::parse().verb {
        Verb::Run(run) => run.execute(),
        Verb::Replay(replay) => replay.execute(),
        Verb::Coverage(coverage) => coverage.execute(),
        Verb::Meta(meta) => meta.execute(),
        #[cfg(feature = "planted")]
        Verb::Mutants(mutants) => mutants.execute(),
    }
}
