//! `holdfast cluster promote`: a learner becomes a voter.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::add;
use crate::exit::Problem;
use crate::global::Global;
use crate::one_shot;
use crate::output::{self, Show};

/// Makes a learner that has caught up a voter.
///
/// Only for nodes that were added with `--learner`. The leader promotes the others by itself.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the node is a voter; 64 there is no such node; 75 the node has not caught up, or
another change is under way.

Examples:
  holdfast cluster promote 9"
)]
pub(crate) struct PromoteArgs {
    /// The learner.
    #[arg(value_name = "ID", value_parser = add::node_id)]
    id: u64,
}

#[derive(Debug, Serialize)]
struct Promoted {
    voter: u64,
}

impl Show for Promoted {
    fn to_table(&self) -> String {
        format!("node {} is a voter\n", self.voter)
    }
}

pub(super) async fn run(args: PromoteArgs, global: &Global) -> Result<ExitCode, Problem> {
    one_shot::calls(global)?.promote_node(args.id).await?;
    output::show(global.output, &Promoted { voter: args.id })
}
