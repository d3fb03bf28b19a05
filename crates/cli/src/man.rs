//! `holdfast man`: the help of all commands as manual pages.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};

use crate::exit::{Code, Problem};
use crate::output;

/// Writes manual pages, one for each command, into a directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast man --dir ./man1
  holdfast man --dir ./man1 && man ./man1/holdfast-lock.1")]
pub(crate) struct ManArgs {
    /// The directory. The command creates it if it does not exist.
    #[arg(long, value_name = "D")]
    dir: PathBuf,
}

pub(crate) fn run(args: &ManArgs, command: Command) -> Result<ExitCode, Problem> {
    let written = std::fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(command, &args.dir));
    written.map_err(|error| {
        let words = format!("cannot write manual pages to {}: {error}", args.dir.display());
        Problem::new(Code::Unavailable, words)
    })?;
    output::message(&format!("manual pages are in {}", args.dir.display()));
    Ok(ExitCode::SUCCESS)
}
