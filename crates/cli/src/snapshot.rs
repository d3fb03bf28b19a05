//! `holdfast snapshot`: the state of a cluster as a file. One file per verb.

mod inspect;
mod restore;
mod save;

use std::process::ExitCode;

use clap::Subcommand;

use crate::exit::Problem;
use crate::global::Global;

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotVerb {
    Save(save::SaveArgs),
    Inspect(inspect::InspectArgs),
    Restore(restore::RestoreArgs),
}

pub(crate) async fn run(verb: SnapshotVerb, global: &Global) -> Result<ExitCode, Problem> {
    match verb {
        SnapshotVerb::Save(args) => save::run(args, global).await,
        SnapshotVerb::Inspect(args) => inspect::run(&args, global),
        SnapshotVerb::Restore(args) => restore::run(&args, global),
    }
}
