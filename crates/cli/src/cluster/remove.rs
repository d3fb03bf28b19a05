//! `holdfast cluster remove`: one node less.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::add;
use crate::exit::Problem;
use crate::global::Global;
use crate::one_shot;
use crate::output::{self, Show};

/// Removes a node from the cluster, whether it runs or not.
///
/// This is permanent: the id is never used again. A leader hands leadership over first. A running node is notified, and
/// stops. The cluster refuses if too few of the remaining nodes answer. There is no way to force it, because without a
/// quorum the cluster cannot decide it.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the node is no member; 64 there is no such node, or it is the last voter; 69 too few
nodes would be left; 75 another change is under way, or one of several groups still has the node.

Examples:
  holdfast cluster remove 3"
)]
pub(crate) struct RemoveArgs {
    /// The node to remove.
    #[arg(value_name = "ID", value_parser = add::node_id)]
    id: u64,
}

#[derive(Debug, Serialize)]
struct Removed {
    removed: u64,
}

impl Show for Removed {
    fn to_table(&self) -> String {
        format!("node {} is not in the cluster any more\n", self.removed)
    }
}

pub(super) async fn run(args: RemoveArgs, global: &Global) -> Result<ExitCode, Problem> {
    one_shot::calls(global)?.remove_node(args.id).await?;
    output::show(global.output, &Removed { removed: args.id })
}
