//! `holdfast freeze`: nothing under a prefix is granted for a while.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::duration;
use crate::exit::Problem;
use crate::global::Global;
use crate::intervention::ReasonArgs;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};
use crate::text;

/// Stops new grants of all locks whose names start with a prefix.
///
/// Held locks stay held, and can be released and renewed. Waiting clients keep waiting until their deadline. A freeze
/// ends by itself, or with `holdfast thaw`. A second freeze of the same prefix replaces the first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast freeze billing/ --for 30m --reason 'database migration'
  holdfast freeze '*' --for 5m --reason 'failover drill'     # everything")]
pub(crate) struct FreezeArgs {
    /// The prefix; '*' freezes all locks. 'billing/*' is the same as billing/.
    #[arg(value_parser = name::parse_prefix_to_freeze)]
    prefix: String,
    /// How long the freeze lasts, at most 30d.
    #[arg(long = "for", value_name = "D", allow_hyphen_values = true,
          value_parser = duration::parse_freeze)]
    ttl: Duration,
    #[command(flatten)]
    reason: ReasonArgs,
}

#[derive(Debug, Serialize)]
struct Frozen {
    prefix: String,
    for_ms: u64,
}

impl Show for Frozen {
    fn to_table(&self) -> String {
        let for_words = duration::in_words(self.for_ms);
        format!("{} is frozen for {for_words}\n", prefix_in_words(&self.prefix))
    }
}

pub(crate) fn prefix_in_words(prefix: &str) -> String {
    match prefix {
        "" => "everything".to_owned(),
        prefix => format!("what starts with {}", text::quoted(prefix)),
    }
}

pub(crate) async fn run(args: FreezeArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    calls.freeze(&args.reason.why(), &args.prefix, args.ttl).await?;
    let for_ms = u64::try_from(args.ttl.as_millis()).unwrap_or(u64::MAX);
    output::show(global.output, &Frozen { prefix: args.prefix, for_ms })
}
