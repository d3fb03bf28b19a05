//! `holdfast release`: give back a lock that `holdfast acquire` took.

use std::process::ExitCode;

use clap::Args;
use holdfast_client::unary::CallError;
use holdfast_client::{ReleaseOutcome, SessionId};
use holdfast_proto::v1::Reason;
use serde::Serialize;

use crate::cli::Global;
use crate::exit::{Code, Problem};
use crate::one_shot;
use crate::output::{self, Show};

/// Gives back a lock that `holdfast acquire` took, and closes its session.
///
/// The session belongs to this one lock: whatever else was taken with it is freed too.
#[derive(Debug, Args)]
#[command(after_help = "Prints released, already_released, not_owner or expired.
Exit codes: 0 released, or already released; 77 not_owner: the token is not this session's, and the
session is left as it is; 79 expired: the lock had ended before, or its session had.

Examples:
  holdfast release deploy --session \"$session\" --token \"$token\"")]
pub(crate) struct ReleaseArgs {
    /// The lock's name.
    name: String,
    /// The session that `acquire` printed.
    #[arg(long, value_name = "S")]
    session: SessionId,
    /// The token that `acquire` printed.
    #[arg(long, value_name = "N", value_parser = one_shot::token_parser())]
    token: u64,
}

#[derive(Debug, Serialize)]
struct Outcome {
    name: String,
    token: u64,
    outcome: &'static str,
}

impl Show for Outcome {
    fn to_table(&self) -> String {
        format!("{}\n", self.outcome)
    }
}

pub(crate) async fn run(args: ReleaseArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let id = one_shot::next_call_id();
    let (outcome, code) = match calls.release(args.session, id, &args.name, args.token).await {
        Ok(ReleaseOutcome::Released) => ("released", ExitCode::SUCCESS),
        Ok(ReleaseOutcome::AlreadyReleased) => ("already_released", ExitCode::SUCCESS),
        Ok(ReleaseOutcome::NotOwner) => ("not_owner", Code::Denied.into()),
        Ok(_) => ("expired", Code::LockLost.into()),
        // Whatever it held was freed when it ended.
        Err(CallError::Rejected(rejection)) if rejection.reason == Reason::UnknownSession => {
            ("expired", Code::LockLost.into())
        }
        Err(error) => return Err(error.into()),
    };
    if outcome != "not_owner" {
        one_shot::close_session(&calls, args.session).await;
    }
    output::show(global.output, &Outcome { name: args.name, token: args.token, outcome })?;
    Ok(code)
}
