//! `holdfast fence`: the resource's half of a lock, for people who set it up.

use std::process::ExitCode;

use clap::Subcommand;

use crate::exit::Problem;
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum FenceVerb {
    /// Prints the PostgreSQL migration: a table of high-water marks, and functions that check a token.
    ///
    /// It can be run again at any time; it changes no data. It needs no cluster.
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
