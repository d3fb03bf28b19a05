//! `holdfast access token`: by what clients prove who they are.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use holdfast_core::{NOTE_BYTES_MAX, Principal};
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::{AccessToken, v1};
use holdfast_server::utc;
use serde::Serialize;

use super::lockout::{self, ForceArgs};
use super::secret_file::TokenOutput;
use crate::duration;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output::{self, Show};
use crate::text::{on_one_line, table};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    Create(CreateArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Creates a token for a user.
///
/// A user may have several tokens: to rotate one, create another, give it to the clients, and revoke the old one. Sessions
/// live on, because they belong to the user. The cluster keeps a digest of the token. The token itself is told once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access token create token:billing --to billing.token
  holdfast access token create token:ci --expires 90d --note 'the build of main' --to ci.token")]
pub(crate) struct CreateArgs {
    /// The user, as token:NAME.
    #[arg(value_parser = super::parse_principal)]
    principal: Principal,
    #[command(flatten)]
    token: TokenArgs,
}

#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    /// The token is refused after this time. By default it has no end.
    #[arg(long, value_name = "D", value_parser = duration::parse_above_zero)]
    expires: Option<Duration>,
    /// A word for people who list the tokens.
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = parse_note)]
    note: String,
    #[command(flatten)]
    output: TokenOutput,
}

impl TokenArgs {
    /// Nothing is said of a token.
    pub(super) fn is_default(&self) -> bool {
        self.expires.is_none() && self.note.is_empty() && self.output.to.is_none()
    }
}

/// Lists the tokens: id, user, end and note. Their secrets are not known to the cluster.
///
/// The cluster does not record when a token was last used. The audit files of the nodes say which tokens opened a session:
/// the field `credential` of each line `login` has the token's id.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access token list
  holdfast access token list --within 30d                  # what to replace or revoke
  holdfast access token list --within 0s --output json     # what is over")]
pub(crate) struct ListArgs {
    /// Lists only the tokens that end within this time, or have ended. What ends first is listed first.
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse)]
    within: Option<Duration>,
}

/// Revokes a token. Its user keeps its roles and its other tokens.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access token revoke 0123456789abcdef
  holdfast access token revoke 0123456789abcdef --end-sessions")]
pub(crate) struct RevokeArgs {
    /// The id of the token, as `holdfast access token list` shows it.
    id: String,
    /// Ends all sessions of its user at once. Otherwise they go on, with another token.
    #[arg(long)]
    end_sessions: bool,
    #[command(flatten)]
    force: ForceArgs,
}

#[derive(Debug, Serialize)]
struct Tokens {
    tokens: Vec<TokenInfo>,
    /// Only those that end within this time are listed.
    #[serde(skip)]
    within: Option<Duration>,
}

#[derive(Debug, Serialize)]
struct TokenInfo {
    id: String,
    principal: String,
    expires_at_unix_ms: Option<u64>,
    /// By the clock of this machine.
    has_ended: bool,
    note: String,
}

impl TokenInfo {
    fn of(token: v1::AccessTokenInfo, now_unix_ms: u64) -> TokenInfo {
        let v1::AccessTokenInfo { id, principal, expires_at_unix_ms, note } = token;
        let has_ended = expires_at_unix_ms.is_some_and(|end| end <= now_unix_ms);
        TokenInfo { id, principal, expires_at_unix_ms, has_ended, note }
    }
}

impl Tokens {
    fn of(tokens: Vec<v1::AccessTokenInfo>, within: Option<Duration>, now_unix_ms: u64) -> Tokens {
        let mut tokens: Vec<TokenInfo> =
            tokens.into_iter().map(|token| TokenInfo::of(token, now_unix_ms)).collect();
        if let Some(within) = within {
            let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
            let last = now_unix_ms.saturating_add(within_ms);
            tokens.retain(|token| token.expires_at_unix_ms.is_some_and(|end| end <= last));
            tokens.sort_by_key(|token| token.expires_at_unix_ms);
        }
        Tokens { tokens, within }
    }
}

impl Show for Tokens {
    fn to_table(&self) -> String {
        if self.tokens.is_empty() {
            return match self.within {
                None => "there are no tokens\n".to_owned(),
                Some(Duration::ZERO) => "no token has ended\n".to_owned(),
                Some(within) => {
                    format!("no token has ended or ends within {}\n", duration::as_written(within))
                }
            };
        }
        let row = |token: &TokenInfo| {
            let mut end = token.expires_at_unix_ms.map_or("never".to_owned(), utc);
            if token.has_ended {
                end += " (ended)";
            }
            vec![token.id.clone(), token.principal.clone(), end, on_one_line(&token.note)]
        };
        let rows: Vec<Vec<String>> = self.tokens.iter().map(row).collect();
        table(&["ID", "USER", "ENDS", "NOTE"], &rows)
    }
}

pub(super) async fn run(verb: TokenVerb, global: &Global) -> Result<ExitCode, Problem> {
    match verb {
        TokenVerb::Create(CreateArgs { principal, token }) => {
            create(global, &principal, token, Vec::new()).await
        }
        TokenVerb::List(ListArgs { within }) => {
            let policy = super::load(&global.calls()?).await?;
            let now_unix_ms = from_now(Duration::ZERO);
            output::show(global.output, &Tokens::of(policy.tokens, within, now_unix_ms))
        }
        TokenVerb::Revoke(RevokeArgs { id, end_sessions, force }) => {
            let calls = global.calls()?;
            let policy = super::load(&calls).await?;
            let words = format!("revoked the token {id}");
            let changes = vec![Change::RevokeToken(id)];
            lockout::check(&force, global, &calls, &policy, &changes).await?;
            super::make(global, changes, end_sessions, words).await
        }
    }
}

/// Makes a token, and these changes with it.
pub(super) async fn create(
    global: &Global,
    principal: &Principal,
    args: TokenArgs,
    mut changes: Vec<Change>,
) -> Result<ExitCode, Problem> {
    if !principal.is_token() {
        let words =
            format!("{principal} has no tokens: only users token:NAME prove by one who they are");
        return Err(Problem::new(Code::Usage, words));
    }
    let calls = global.calls()?;
    let token = random()?;
    let expires_at_unix_ms = args.expires.map(from_now);
    changes.push(put(&token, principal, expires_at_unix_ms, args.note));
    let destination = args.output.write(&token)?;
    match super::change(&calls, changes, false).await {
        Ok(generation) => {
            let principal = principal.to_string();
            destination.hand_over(global, &token, principal, Some(generation), expires_at_unix_ms)
        }
        Err(problem) => {
            destination.discard();
            Err(problem)
        }
    }
}

pub(super) fn random() -> Result<AccessToken, Problem> {
    let none = |error| format!("the operating system gives no random numbers: {error}");
    AccessToken::random().map_err(|error| Problem::new(Code::Unavailable, none(error)))
}

pub(super) fn put(
    token: &AccessToken,
    principal: &Principal,
    expires_at_unix_ms: Option<u64>,
    note: String,
) -> Change {
    let info = v1::AccessTokenInfo {
        id: format!("{:016x}", token.id),
        principal: principal.to_string(),
        expires_at_unix_ms,
        note,
    };
    Change::PutToken(v1::NewAccessToken { info: Some(info), digest: token.digest().to_vec() })
}

/// By the clock of this machine.
fn from_now(span: Duration) -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.saturating_add(span).as_millis()).unwrap_or(u64::MAX)
}

fn parse_note(text: &str) -> Result<String, String> {
    match text.len() <= NOTE_BYTES_MAX {
        true => Ok(text.to_owned()),
        false => Err(format!("a note has at most {NOTE_BYTES_MAX} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn listed(within_ms: Option<u64>) -> Tokens {
        let token = |id: &str, expires_at_unix_ms| v1::AccessTokenInfo {
            id: id.to_owned(),
            principal: "token:a".to_owned(),
            expires_at_unix_ms,
            note: String::new(),
        };
        let all = vec![
            token("late", Some(NOW + 101)),
            token("soon", Some(NOW + 100)),
            token("never", None),
            token("over", Some(NOW)),
            token("long-over", Some(7)),
        ];
        Tokens::of(all, within_ms.map(Duration::from_millis), NOW)
    }

    fn ids(tokens: &Tokens) -> Vec<&str> {
        tokens.tokens.iter().map(|token| token.id.as_str()).collect()
    }

    #[test]
    fn tokens_that_end_within_a_time_or_have_ended_are_listed_the_first_end_first() {
        assert_eq!(ids(&listed(None)), ["late", "soon", "never", "over", "long-over"]);
        assert_eq!(ids(&listed(Some(100))), ["long-over", "over", "soon"]);
        assert_eq!(ids(&listed(Some(0))), ["long-over", "over"]);
        assert_eq!(ids(&listed(Some(u64::MAX))), ["long-over", "over", "soon", "late"]);
    }

    #[test]
    fn a_token_that_has_ended_is_shown_as_such() {
        let shown = listed(Some(100)).to_table();
        let has_ended = |id: &str| {
            let line = shown.lines().find(|line| line.starts_with(id)).unwrap();
            line.contains("(ended)")
        };
        assert!(has_ended("over") && has_ended("long-over") && !has_ended("soon"), "{shown}");
        let none = Tokens::of(Vec::new(), Some(Duration::from_secs(3600)), NOW);
        assert_eq!(none.to_table(), "no token has ended or ends within 1h\n");
    }
}
