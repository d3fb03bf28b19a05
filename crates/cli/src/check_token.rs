//! `holdfast check-token`: whether a lock is still held under a token.

use std::process::ExitCode;

use clap::Args;
use holdfast_client::unary::TokenState;
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};
use crate::tier::TierArg;
use crate::token;

/// Tells whether a lock is still held under a token.
///
/// A hint, for a job that would rather stop early; it is no fence. The lock can change hands between this
/// answer and the next write, so what is protected must refuse old tokens itself: see docs/fencing.md.
#[derive(Debug, Args)]
#[command(
    after_help = "Prints current, superseded (somebody holds it under a higher token), free (nobody holds
it) or never_given (no hold of this lock can have had it).
Exit codes: 0 current; 79 anything else.

Examples:
  holdfast check-token deploy \"$token\"
  holdfast check-token deploy \"$fence\"
  holdfast check-token thumbnails \"$token\" --tier efficiency
  holdfast check-token deploy \"$token\" --output json"
)]
pub(crate) struct CheckTokenArgs {
    /// The lock's name.
    #[arg(value_parser = name::parse)]
    name: String,
    /// The token: its number, or its full form, which is that of one lock and tier.
    token: String,
    /// Of which tier a number is.
    #[arg(long, value_enum, value_name = "TIER", default_value_t = TierArg::Correctness)]
    tier: TierArg,
}

#[derive(Debug, Serialize)]
struct Checked {
    name: String,
    token: String,
    state: &'static str,
    /// Null unless it is superseded.
    #[serde(serialize_with = "token::as_text_if_any")]
    current_token: Option<u64>,
}

impl Show for Checked {
    fn to_table(&self) -> String {
        match self.current_token {
            Some(current) => format!("{} by {current}\n", self.state),
            None => format!("{}\n", self.state),
        }
    }
}

pub(crate) async fn run(args: CheckTokenArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?.tier(args.tier.to_tier());
    let state = match args.token.parse::<u64>() {
        Ok(number) => calls.check_token(&args.name, number).await?,
        Err(_) => calls.check_fence(&args.name, &args.token).await?,
    };
    let (state, current_token) = match state {
        TokenState::Current => ("current", None),
        TokenState::Superseded { current } => ("superseded", Some(current)),
        TokenState::NeverGiven => ("never_given", None),
        _ => ("free", None),
    };
    output::show(
        global.output,
        &Checked { name: args.name, token: args.token, state, current_token },
    )?;
    Ok(if state == "current" { ExitCode::SUCCESS } else { Code::LockLost.into() })
}
