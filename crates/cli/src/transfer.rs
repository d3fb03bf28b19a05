//! `holdfast transfer`: hand a lock to a chosen waiter.

use std::process::ExitCode;

use clap::Args;
use holdfast_client::PublicSessionId;
use serde::Serialize;

use crate::break_lock::{is_not_held, not_held, with_hint};
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::intervention::ReasonArgs;
use crate::misuse_hint;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};
use crate::tier::TierArg;
use crate::token::{self, TokenArg};

/// Hands an exclusive lock to a waiting session, ahead of the queue.
///
/// The lock is never free in between. The session must wait for this lock alone, and exclusively; `holdfast status`
/// shows the queue. Without --token the command first looks up the present hold, and hands over exactly that one.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 handed over; 64 that session does not wait for the lock; 79 the lock is free, or is
not held under that token.

Examples:
  holdfast transfer leader --to 1f3a5c7e9b2d4f60 --reason 'maintenance of host a'"
)]
pub(crate) struct TransferArgs {
    /// The lock's name.
    #[arg(value_parser = name::parse)]
    name: String,
    /// The public id of the session, as `holdfast status` shows it.
    #[arg(long, value_name = "SESSION")]
    to: PublicSessionId,
    /// Only if it is held under this token: its number, or its full form.
    #[arg(long, value_name = "TOKEN", allow_negative_numbers = true, value_parser = TokenArg::parse)]
    token: Option<TokenArg>,
    #[command(flatten)]
    reason: ReasonArgs,
}

#[derive(Debug, Serialize)]
struct Transferred {
    name: String,
    to: String,
    #[serde(serialize_with = "token::as_text")]
    token: u64,
}

impl Show for Transferred {
    fn to_table(&self) -> String {
        format!("{} is now held by session {} under token {}\n", self.name, self.to, self.token)
    }
}

pub(crate) async fn run(args: TransferArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let token = match args.token {
        Some(token) => token.number_of(&args.name, TierArg::Correctness)?,
        None => {
            let status = calls.status(&args.name).await?;
            let free = || {
                let words = format!("'{}' is free: there is no hold to transfer", args.name);
                let hint = misuse_hint::only_in_efficiency_tier(&status);
                Problem::new(Code::LockLost, with_hint(words, hint))
            };
            status.holders.first().ok_or_else(free)?.token
        }
    };
    let to = args.to.to_string();
    let moved = calls.move_lock(&args.reason.why(), &args.name, token, &to).await;
    let token = moved.map_err(|error| match is_not_held(&error) {
        true => not_held(&args.name, &token.to_string()),
        false => error.into(),
    })?;
    output::show(global.output, &Transferred { name: args.name, to, token })
}
