//! `holdfast cluster`: look after the cluster itself. One file per verb.

mod add;
mod limits;
mod promote;
mod remove;
mod replace;
mod status;
mod transfer;

pub(crate) use status::{known_lag, role_text};

use std::process::ExitCode;

use clap::Subcommand;

use crate::exit::Problem;
use crate::global::Global;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    Status(status::StatusArgs),
    Add(add::AddArgs),
    Remove(remove::RemoveArgs),
    Replace(replace::ReplaceArgs),
    Promote(promote::PromoteArgs),
    Transfer(transfer::TransferArgs),
    Limits(limits::LimitsArgs),
}

pub(crate) async fn run(verb: ClusterVerb, global: &Global) -> Result<ExitCode, Problem> {
    match verb {
        ClusterVerb::Status(args) => status::run(args, global).await,
        ClusterVerb::Add(args) => add::run(args, global).await,
        ClusterVerb::Remove(args) => remove::run(args, global).await,
        ClusterVerb::Replace(args) => replace::run(args, global).await,
        ClusterVerb::Promote(args) => promote::run(args, global).await,
        ClusterVerb::Transfer(args) => transfer::run(args, global).await,
        ClusterVerb::Limits(args) => limits::run(args, global).await,
    }
}
