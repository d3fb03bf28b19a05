//! `holdfast fence`: the resource's half of a lock, for people who set it up.

use std::process::ExitCode;

use clap::Subcommand;

use crate::exit::Problem;
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum FenceVerb {
    /// Prints the PostgreSQL migration of the fence: a table with the highest token per lock, and functions that check
    /// a token.
    ///
    /// Run it with `psql -f`. It can be run again at any time, and changes no data. The command needs no cluster.
    #[command(after_help = "Examples:
  holdfast fence sql > holdfast_fence.sql")]
    Sql,
}

pub(crate) fn run(verb: &FenceVerb) -> Result<ExitCode, Problem> {
    match verb {
        FenceVerb::Sql => output::data_to_stdout(holdfast_fence::POSTGRES_MIGRATION)?,
    }
    Ok(ExitCode::SUCCESS)
}
