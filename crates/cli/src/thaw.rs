//! `holdfast thaw`: end a freeze.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::exit::Problem;
use crate::freeze::prefix_in_words;
use crate::global::Global;
use crate::intervention::ReasonArgs;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};

/// Ends a freeze before its time. Free locks go to the next clients in their queues.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 thawed; 64 that prefix is not frozen (see `holdfast freezes`).

Examples:
  holdfast thaw billing/ --reason 'migration is done'"
)]
pub(crate) struct ThawArgs {
    /// The prefix that was given to `freeze`.
    #[arg(value_parser = name::parse_prefix)]
    prefix: String,
    #[command(flatten)]
    reason: ReasonArgs,
}

#[derive(Debug, Serialize)]
struct Thawed {
    prefix: String,
}

impl Show for Thawed {
    fn to_table(&self) -> String {
        format!("{} is no longer frozen\n", prefix_in_words(&self.prefix))
    }
}

pub(crate) async fn run(args: ThawArgs, global: &Global) -> Result<ExitCode, Problem> {
    one_shot::calls(global)?.thaw(&args.reason.why(), &args.prefix).await?;
    output::show(global.output, &Thawed { prefix: args.prefix })
}
