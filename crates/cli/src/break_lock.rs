//! `holdfast break`: take a lock away from its holder.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use holdfast_client::unary::CallError;
use holdfast_proto::v1::Reason;
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::intervention::ReasonArgs;
use crate::misuse_hint;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};
use crate::status::{Holder, holder_table};
use crate::tier::TierArg;
use crate::token::TokenArg;

/// Takes a lock away from its holder, now.
///
/// The holder is notified, and its guard returns no token any more. Work that it has begun continues until it checks
/// the guard, so the resource has to check tokens. The next client in the queue gets the lock at once, unless the hold
/// had a lock delay.
///
/// Without --token the command first looks up the present hold, and breaks exactly that one.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 broken; 79 the lock is free, or is not held under that token.

Examples:
  holdfast break deploy --reason 'the build host is on fire'
  holdfast break deploy --token 42 --reason 'hung since yesterday'"
)]
pub(crate) struct BreakArgs {
    /// The lock's name.
    #[arg(value_parser = name::parse)]
    name: String,
    /// Only the hold under this token: its number, or its full form.
    #[arg(long, value_name = "TOKEN", allow_negative_numbers = true, value_parser = TokenArg::parse)]
    token: Option<TokenArg>,
    #[command(flatten)]
    reason: ReasonArgs,
}

#[derive(Debug, Serialize)]
struct Broken {
    name: String,
    holds: u64,
    /// As they were when they were looked up; of many not all.
    holders: Vec<Holder>,
}

impl Show for Broken {
    fn to_table(&self) -> String {
        let mut text = format!("broke {} of {}\n", holds_in_words(self.holds), self.name);
        if !self.holders.is_empty() {
            text += &format!("\n{}", holder_table(&self.holders));
        }
        text
    }
}

pub(crate) async fn run(args: BreakArgs, global: &Global) -> Result<ExitCode, Problem> {
    let wanted =
        args.token.map(|token| token.number_of(&args.name, TierArg::Correctness)).transpose()?;
    let calls = one_shot::calls(global)?;
    let status = calls.status(&args.name).await?;
    let hint = misuse_hint::only_in_efficiency_tier(&status);
    let holders = status.holders.into_iter().map(Holder::from);
    let is_meant = |holder: &Holder| wanted.is_none_or(|token| holder.token == token);
    let holders: Vec<Holder> = holders.filter(is_meant).collect();
    // Each permit of a semaphore has a token of its own.
    let tokens: BTreeSet<u64> =
        wanted.into_iter().chain(holders.iter().map(|holder| holder.token)).collect();
    if tokens.is_empty() {
        let words = format!("'{}' is free: there is no hold to break", args.name);
        return Err(Problem::new(Code::LockLost, with_hint(words, hint)));
    }
    let why = args.reason.why();
    let mut holds = 0;
    for token in &tokens {
        match calls.break_lock(&why, &args.name, *token).await {
            Ok(broken) => holds += broken,
            // Given back in the meantime.
            Err(error) if is_not_held(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if holds == 0 {
        let tokens = tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        return Err(not_held(&args.name, &tokens));
    }
    output::show(global.output, &Broken { name: args.name, holds, holders })
}

/// With where else it may be looked for.
pub(crate) fn with_hint(words: String, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("{words}\n  {hint}"),
        None => words,
    }
}

fn holds_in_words(holds: u64) -> String {
    if holds == 1 { "the hold".to_owned() } else { format!("{holds} holds") }
}

pub(crate) fn is_not_held(error: &CallError) -> bool {
    matches!(error, CallError::Rejected(rejection) if rejection.reason == Reason::NotHeld)
}

pub(crate) fn not_held(name: &str, token: &str) -> Problem {
    let words = format!("{name} is not held under token {token}; nothing was done");
    Problem::new(Code::LockLost, words)
}
