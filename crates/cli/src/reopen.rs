//! `holdfast reopen`: end a lock delay.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::exit::Problem;
use crate::global::Global;
use crate::intervention::ReasonArgs;
use crate::one_shot;
use crate::output::{self, Show};

/// Opens a lock that a lock delay keeps closed. It goes to the next client in its queue.
///
/// The lock delay exists because the holder was lost, and its work may still run. Make sure that it does not.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 reopened; 64 no lock delay keeps it closed (see `holdfast why NAME`).

Examples:
  holdfast reopen db/migration --reason 'the old host is switched off'"
)]
pub(crate) struct ReopenArgs {
    /// The lock's name.
    name: String,
    #[command(flatten)]
    reason: ReasonArgs,
}

#[derive(Debug, Serialize)]
struct Reopened {
    name: String,
}

impl Show for Reopened {
    fn to_table(&self) -> String {
        format!("{} is open again\n", self.name)
    }
}

pub(crate) async fn run(args: ReopenArgs, global: &Global) -> Result<ExitCode, Problem> {
    one_shot::calls(global)?.reopen(&args.reason.why(), &args.name).await?;
    output::show(global.output, &Reopened { name: args.name })
}
