//! `holdfast renew`: keep a lock that `holdfast acquire` took for another TTL.

use std::process::ExitCode;

use clap::Args;
use holdfast_client::unary::CallError;
use holdfast_proto::v1::Reason;
use serde::Serialize;

use crate::break_lock::is_not_held;
use crate::duration;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::misuse_hint::ClaimedHold;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};
use crate::session_arg::SessionArgs;
use crate::text::quoted;
use crate::tier::TierArg;
use crate::token::{self, TokenArg};

/// Renews a lock that `holdfast acquire` took: it is held for another TTL, counted from now.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 renewed; 64 the session holds the lock under another name or in the other tier;
79 the lock has ended.

Examples:
  holdfast renew deploy --session \"$session\" --token \"$token\"
  holdfast renew deploy --session-file deploy.session --token \"$token\""
)]
pub(crate) struct RenewArgs {
    /// The lock's name.
    #[arg(value_parser = name::parse)]
    name: String,
    #[command(flatten)]
    session: SessionArgs,
    /// The token that `acquire` printed, or its full form.
    #[arg(long, value_name = "TOKEN", allow_negative_numbers = true, value_parser = TokenArg::parse)]
    token: TokenArg,
    /// The --tier of `acquire`.
    #[arg(long, value_enum, value_name = "TIER", default_value_t = TierArg::Correctness)]
    tier: TierArg,
}

#[derive(Debug, Serialize)]
struct Renewed {
    name: String,
    #[serde(serialize_with = "token::as_text")]
    token: u64,
    remaining_ms: u64,
}

impl Show for Renewed {
    fn to_table(&self) -> String {
        format!("renewed, ends in {}\n", duration::in_words(self.remaining_ms))
    }
}

/// The session lives. If it holds what is meant, and not as was said, nothing is lost.
async fn why_not(error: CallError, claimed: ClaimedHold<'_>) -> Problem {
    let ClaimedHold { tier, name, token, .. } = claimed;
    match claimed.find_hint().await {
        Some(hint) => Problem::new(Code::Usage, hint.in_words("renew", name, token)),
        None if tier == TierArg::Correctness => Problem::new(
            Code::LockLost,
            format!(
                "this session does not hold {name} under token {token}: the token is of another hold, its lease ended, \
                 or an operator took it away; `holdfast history {}` shows which",
                quoted(name)
            ),
        ),
        None => error.into(),
    }
}

/// If the cluster does not know the session, it has freed what the session held.
fn of_unknown_session(error: CallError, name: &str) -> Problem {
    match error {
        CallError::Rejected(rejection) if rejection.reason == Reason::UnknownSession => {
            Problem::new(
                Code::LockLost,
                format!(
                    "the cluster does not know this session: it has ended, or never existed; it holds no lock. \
                     `holdfast acquire {}` takes the lock with a new session",
                    quoted(name)
                ),
            )
        }
        error => error.into(),
    }
}

pub(crate) async fn run(args: RenewArgs, global: &Global) -> Result<ExitCode, Problem> {
    let RenewArgs { name, session, token, tier } = args;
    let (session, token) = (session.id()?, token.number_of(&name, tier)?);
    let calls = one_shot::calls(global)?.tier(tier.to_tier());
    let alive = calls.keep_alive(session, one_shot::next_request_id()).await;
    let alive = alive.map_err(|error| of_unknown_session(error, &name))?;
    let id = one_shot::next_call_id();
    let renewed = calls.renew(session, id, &name, token, None).await;
    let answer = match renewed {
        Err(error) if is_not_held(&error) => {
            let claimed = ClaimedHold { calls: &calls, session, tier, name: &name, token };
            return Err(why_not(error, claimed).await);
        }
        renewed => renewed?,
    };
    let until = |end_ms: u64| end_ms.saturating_sub(answer.logical_time_ms);
    // The efficiency tier does not know when the session ends; the heartbeat has just told.
    let session_ms = match answer.session_deadline_ms {
        0 => alive.ttl_ms,
        end_ms => until(end_ms),
    };
    let remaining_ms = answer.deadline_ms.map_or(session_ms, |own| until(own).min(session_ms));
    output::show(global.output, &Renewed { name, token, remaining_ms })
}
