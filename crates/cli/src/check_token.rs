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
use crate::token::{self, TokenArg};

/// Checks whether a lock is still held under a token.
///
/// This is a hint for a job that wants to stop early, and no fence: the lock can change hands between this answer and
/// the next write. The resource itself must refuse old tokens, see docs/fencing.md.
#[derive(Debug, Args)]
#[command(
    after_help = "Prints current, superseded (the lock is held under a higher token), free (the lock is not held)
or never_given (the cluster has not granted this token yet).
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
    /// The token: its number or its full form.
    #[arg(allow_negative_numbers = true, value_parser = parse_token)]
    token: String,
    /// The tier of a token that is given as a number.
    #[arg(long, value_enum, value_name = "TIER", default_value_t = TierArg::Correctness)]
    tier: TierArg,
}

/// The text itself is shown again.
fn parse_token(text: &str) -> Result<String, String> {
    TokenArg::parse(text).map(|_| text.to_owned())
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
