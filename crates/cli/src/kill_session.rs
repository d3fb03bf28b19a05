//! `holdfast kill-session`: end a session with all that it has.

use std::process::ExitCode;

use clap::Args;
use holdfast_client::PublicSessionId;
use serde::Serialize;

use crate::exit::Problem;
use crate::global::Global;
use crate::intervention::ReasonArgs;
use crate::one_shot;
use crate::output::{self, Show};

/// Ends a session. Its locks and its places in queues are freed at once.
///
/// If its client is connected, it is notified and loses all its guards.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 ended; 64 there is no such session, or it has ended.

Examples:
  holdfast sessions
  holdfast kill-session 1f3a5c7e9b2d4f60 --reason 'runaway worker'")]
pub(crate) struct KillSessionArgs {
    /// The public id, as `holdfast sessions` shows it.
    #[arg(value_name = "SESSION")]
    session: PublicSessionId,
    #[command(flatten)]
    reason: ReasonArgs,
}

#[derive(Debug, Serialize)]
struct Killed {
    session: String,
}

impl Show for Killed {
    fn to_table(&self) -> String {
        format!("session {} has ended\n", self.session)
    }
}

pub(crate) async fn run(args: KillSessionArgs, global: &Global) -> Result<ExitCode, Problem> {
    let session = args.session.to_string();
    one_shot::calls(global)?.kill_session(&args.reason.why(), &session).await?;
    output::show(global.output, &Killed { session })
}
