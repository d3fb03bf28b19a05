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

/// Lists the tokens: id, user, end and note. Their secrets are not known to the cluster.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access token list
  holdfast access token list --output json")]
pub(crate) struct ListArgs {}

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
}

#[derive(Debug, Serialize)]
struct TokenInfo {
    id: String,
    principal: String,
    expires_at_unix_ms: Option<u64>,
    note: String,
}

impl From<v1::AccessTokenInfo> for TokenInfo {
    fn from(token: v1::AccessTokenInfo) -> TokenInfo {
        let v1::AccessTokenInfo { id, principal, expires_at_unix_ms, note } = token;
        TokenInfo { id, principal, expires_at_unix_ms, note }
    }
}

impl Show for Tokens {
    fn to_table(&self) -> String {
        if self.tokens.is_empty() {
            return "there are no tokens\n".to_owned();
        }
        let row = |token: &TokenInfo| {
            let end = token.expires_at_unix_ms.map_or("never".to_owned(), utc);
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
        TokenVerb::List(_) => {
            let policy = super::load(&global.calls()?).await?;
            let tokens = policy.tokens.into_iter().map(TokenInfo::from).collect();
            output::show(global.output, &Tokens { tokens })
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
