//! `holdfast cluster transfer`: another node leads.

use std::process::ExitCode;

use clap::Args;
use holdfast_client::unary::CallError;
use holdfast_proto::v1::Reason;
use serde::Serialize;

use super::add;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::one_shot;
use crate::output::{self, Show};

/// Hands leadership to another node, within milliseconds.
///
/// Clients send waiting calls again by themselves, and keep their places in queues.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 that node leads; 64 it is not a voter, or there is no such group;
69 it does not answer.

Examples:
  holdfast cluster transfer
  holdfast cluster transfer --to 2"
)]
pub(crate) struct TransferArgs {
    /// The next leader. Without it, the node with the most complete log.
    #[arg(long, value_name = "ID", value_parser = add::node_id)]
    to: Option<u64>,
    /// The Raft group that gets another leader, where the cluster has several. [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    group: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Transferred {
    leader: u64,
    /// That was asked for; null for the first one.
    group: Option<u32>,
}

impl Show for Transferred {
    fn to_table(&self) -> String {
        match self.group {
            Some(group) => format!("node {} leads group {group}\n", self.leader),
            None => format!("node {} leads\n", self.leader),
        }
    }
}

pub(super) async fn run(args: TransferArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?.in_group(args.group.unwrap_or(1));
    let leader = calls.transfer_leadership(args.to).await.map_err(|error| match error {
        CallError::Rejected(rejection) if rejection.reason == Reason::WrongGroup => {
            Problem::new(Code::Usage, rejection.message)
        }
        error => error.into(),
    })?;
    output::show(global.output, &Transferred { leader, group: args.group })
}
