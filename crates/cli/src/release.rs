//! `holdfast release`: give back a lock that `holdfast acquire` took.

use std::process::ExitCode;

use clap::Args;
use holdfast_client::ReleaseOutcome;
use holdfast_client::unary::CallError;
use holdfast_proto::v1::Reason;
use serde::Serialize;

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

/// Releases a lock that `holdfast acquire` took, and closes its session.
///
/// The session belongs to this one lock. Everything else that it holds is released too.
#[derive(Debug, Args)]
#[command(after_help = "Prints released, already_released, not_owner or expired.
Exit codes: 0 released or already_released; 77 not_owner: the token is not this session's, or is
that of another name or tier; 79 expired: the lock or its session had ended before. Only `released`
closes the session.

Examples:
  holdfast release deploy --session \"$session\" --token \"$token\"
  holdfast release deploy --session-file deploy.session --token \"$token\"")]
pub(crate) struct ReleaseArgs {
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
struct Outcome {
    name: String,
    #[serde(serialize_with = "token::as_text")]
    token: u64,
    outcome: &'static str,
}

impl Show for Outcome {
    fn to_table(&self) -> String {
        format!("{}\n", self.outcome)
    }
}

pub(crate) async fn run(args: ReleaseArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?.tier(args.tier.to_tier());
    let id = one_shot::next_call_id();
    let ReleaseArgs { name, session, token, tier } = args;
    let session = session.id()?;
    let token = token.number_of(&name, tier)?;
    let answer = calls.release(session, id, &name, token).await;
    let claimed = ClaimedHold { calls: &calls, session, tier, name: &name, token };
    let hint = match answer {
        Ok(ReleaseOutcome::AlreadyReleased | ReleaseOutcome::NotOwner) => claimed.find_hint().await,
        Ok(ReleaseOutcome::Expired) => claimed.find_in_other_tier().await,
        Ok(_) | Err(_) => None,
    };
    let (outcome, code) = match (answer, hint) {
        // The session holds it, but not as was said: it is neither lost nor given back.
        (_, Some(hint)) => {
            output::message(&hint.in_words("release", &name, token));
            ("not_owner", Code::Denied.into())
        }
        (Ok(ReleaseOutcome::Released), _) => {
            let _ = one_shot::close_session(&calls, session).await;
            ("released", ExitCode::SUCCESS)
        }
        (Ok(ReleaseOutcome::AlreadyReleased), _) => {
            output::message(&format!(
                "this session no longer holds {name} under token {token}; nothing was done"
            ));
            ("already_released", ExitCode::SUCCESS)
        }
        (Ok(ReleaseOutcome::NotOwner), _) => {
            output::message(&format!(
                "token {token} of {name} is not this session's, and nothing was done; use the name, the session and the token \
                 of one `holdfast acquire`"
            ));
            ("not_owner", Code::Denied.into())
        }
        (Ok(_), _) => {
            let which = match tier {
                TierArg::Correctness => {
                    format!(" (`holdfast history {}` shows which)", quoted(&name))
                }
                TierArg::Efficiency => String::new(),
            };
            output::message(&format!(
                "{name} was lost before this release: its lease ended, or an operator took it away{which}; another session \
                 may have held it since"
            ));
            ("expired", Code::LockLost.into())
        }
        // Whatever it held was freed when it ended.
        (Err(CallError::Rejected(rejection)), _) if rejection.reason == Reason::UnknownSession => {
            output::message(
                "the cluster does not know this session: it has ended, or never existed; it holds no \
                 lock",
            );
            ("expired", Code::LockLost.into())
        }
        (Err(error), _) => return Err(error.into()),
    };
    output::show(global.output, &Outcome { name, token, outcome })?;
    Ok(code)
}
