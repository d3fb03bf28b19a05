//! `holdfast cluster replace`: a new node takes the place of another.

use std::process::ExitCode;

use clap::Args;

use super::add::{self, NewNode};
use crate::exit::Problem;
use crate::global::Global;

/// Replaces a node with a new one, whether the old one runs or not.
///
/// As `cluster add`, but the old node stops being a member in the same step in which the new one becomes a voter. So
/// the number of voters stays the same. The removed node stops by itself.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast cluster replace 2 --id 6 --peer-address 10.0.0.6:7421 --client-address 10.0.0.6:7420 \\
    --http-address 10.0.0.6:7422 > node-6.toml")]
pub(crate) struct ReplaceArgs {
    /// The node to replace.
    #[arg(value_name = "OLD", value_parser = add::node_id)]
    old: u64,
    #[command(flatten)]
    new: NewNode,
}

pub(super) async fn run(args: ReplaceArgs, global: &Global) -> Result<ExitCode, Problem> {
    add::bring_in(args.new, false, Some(args.old), global).await
}
