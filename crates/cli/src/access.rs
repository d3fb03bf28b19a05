//! `holdfast access`: who may do what. One file per verb, or per kind of thing that it is about.

mod bootstrap;
mod can;
mod lockout;
mod policy;
mod policy_file;
mod quota;
mod reset;
mod role;
mod secret_file;
mod token;
mod user;
mod whoami;

pub(crate) use self::bootstrap::first_administrators;

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Subcommand;
use holdfast_client::unary::Unary;
use holdfast_core::Principal;
use holdfast_proto::v1;
use holdfast_proto::v1::access_change::Change;
use serde::Serialize;

use self::policy_file::PolicyContent;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output::{self, Show};

#[derive(Debug, Subcommand)]
pub(crate) enum AccessVerb {
    Bootstrap(bootstrap::BootstrapArgs),
    Whoami(whoami::WhoamiArgs),
    Can(can::CanArgs),
    Show(policy::ShowArgs),
    Diff(policy::DiffArgs),
    Apply(policy::ApplyArgs),
    /// Creates, lists and revokes users: who has which roles.
    #[command(after_help = "Examples:
  holdfast access user create token:billing --role user --to billing.token
  holdfast access user create cert:reports --role reader
  holdfast access user list
  holdfast access user revoke token:billing --end-sessions")]
    User {
        #[command(subcommand)]
        verb: user::UserVerb,
    },
    /// Creates, lists and deletes roles: which verbs are allowed for which names.
    #[command(after_help = "Examples:
  holdfast access role create billing --allow 'read,exclusive:billing/*' --allow connect
  holdfast access role list
  holdfast access role delete billing")]
    Role {
        #[command(subcommand)]
        verb: role::RoleVerb,
    },
    /// Creates, lists and revokes tokens: by what a client proves who it is.
    #[command(after_help = "Examples:
  holdfast access token create token:billing --to billing.token
  holdfast access token list
  holdfast access token list --within 30d
  holdfast access token revoke 0123456789abcdef")]
    Token {
        #[command(subcommand)]
        verb: token::TokenVerb,
    },
    /// Sets, lists and deletes quotas: how much a user, or all that use the names with a prefix, may take.
    #[command(after_help = "Examples:
  holdfast access quota set token:billing --locks 200 --rate 100
  holdfast access quota set 'reports/*' --locks 20
  holdfast access quota list
  holdfast access quota delete token:billing")]
    Quota {
        #[command(subcommand)]
        verb: quota::QuotaVerb,
    },
    Reset(reset::ResetArgs),
}

pub(crate) async fn run(verb: AccessVerb, global: &Global) -> Result<ExitCode, Problem> {
    match verb {
        AccessVerb::Bootstrap(args) => bootstrap::run(args, global).await,
        AccessVerb::Whoami(_) => whoami::run(global).await,
        AccessVerb::Can(args) => can::run(args, global).await,
        AccessVerb::Show(_) => policy::show(global).await,
        AccessVerb::Diff(args) => policy::diff(&args, global).await,
        AccessVerb::Apply(args) => policy::apply(&args, global).await,
        AccessVerb::User { verb } => user::run(verb, global).await,
        AccessVerb::Role { verb } => role::run(verb, global).await,
        AccessVerb::Token { verb } => token::run(verb, global).await,
        AccessVerb::Quota { verb } => quota::run(verb, global).await,
        AccessVerb::Reset(args) => reset::run(args, global),
    }
}

/// The policy has changed.
#[derive(Debug, Serialize)]
struct Changed {
    /// Of the policy. It is in force for all that follows in the log.
    generation: u64,
    #[serde(skip)]
    words: String,
}

impl Show for Changed {
    fn to_table(&self) -> String {
        format!("{} (generation {})\n", self.words, self.generation)
    }
}

/// Makes all of the changes, or none, and says what was done.
async fn make(
    global: &Global,
    changes: Vec<Change>,
    end_sessions: bool,
    words: String,
) -> Result<ExitCode, Problem> {
    let generation = change(&global.calls()?, changes, end_sessions).await?;
    output::show(global.output, &Changed { generation, words })
}

async fn change(calls: &Unary, changes: Vec<Change>, end_sessions: bool) -> Result<u64, Problem> {
    let changes = changes.into_iter().map(|change| v1::AccessChange { change: Some(change) });
    let request = v1::ChangeAccessRequest {
        changes: changes.collect(),
        expected_generation: None,
        end_sessions,
    };
    send(calls, request).await
}

/// Returns the generation of the changed policy. Says on stderr which groups do not have it yet.
async fn send(calls: &Unary, request: v1::ChangeAccessRequest) -> Result<u64, Problem> {
    let v1::ChangeAccessResponse { generation, groups_behind } =
        calls.change_access(request).await?;
    if let Some(words) = not_everywhere(generation, &groups_behind) {
        output::message(&words);
    }
    Ok(generation)
}

/// None if all groups have the policy.
fn not_everywhere(generation: u64, groups_behind: &[u32]) -> Option<String> {
    let numbers: Vec<String> = groups_behind.iter().map(u32::to_string).collect();
    let (groups, have, their, they) = match numbers.len() {
        0 => return None,
        1 => ("group", "has", "its", "it adopts"),
        _ => ("groups", "have", "their", "they adopt"),
    };
    Some(format!(
        "warning: the policy is changed (generation {generation}), but {groups} {} {have} not adopted it yet. Until then the \
         former policy is in force for {their} locks; {they} the change when a leader knows it. `holdfast cluster status` \
         shows the leaders",
        numbers.join(", ")
    ))
}

fn grants<'a>(principal: &'a Principal, roles: &'a [String]) -> impl Iterator<Item = Change> + 'a {
    roles.iter().map(|role| Change::Grant(binding(principal, role)))
}

/// A role is granted or revoked one at a time.
fn binding(principal: &Principal, role: &str) -> v1::AccessBinding {
    v1::AccessBinding { principal: principal.to_string(), roles: vec![role.to_owned()] }
}

/// The policy as the cluster has it.
struct Policy {
    generation: u64,
    content: PolicyContent,
    quota_use: Vec<v1::AccessQuotaUse>,
    tokens: Vec<v1::AccessTokenInfo>,
    /// Everything was taken from them.
    banned: BTreeSet<Principal>,
}

async fn load(calls: &Unary) -> Result<Policy, Problem> {
    let shown = calls.show_access().await?;
    let unknown = |words: String| {
        let words = format!("the policy has what this version does not know; upgrade it: {words}");
        Problem::new(Code::Unavailable, words)
    };
    let quotas = shown.quotas.iter().filter_map(|found| found.quota.clone()).collect();
    let content = PolicyContent::of(shown.policy.unwrap_or_default(), quotas).map_err(unknown)?;
    let banned = shown.banned.iter().map(|name| parse_principal(name));
    let banned = banned.collect::<Result<_, _>>().map_err(unknown)?;
    let (generation, quota_use, tokens) = (shown.generation, shown.quotas, shown.tokens);
    Ok(Policy { generation, content, quota_use, tokens, banned })
}

fn parse_principal(text: &str) -> Result<Principal, String> {
    Principal::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::not_everywhere;

    #[test]
    fn a_change_that_some_groups_lack_is_told_with_their_numbers() {
        assert_eq!(not_everywhere(3, &[]), None);
        let one = not_everywhere(3, &[2]).unwrap();
        assert!(one.contains("(generation 3), but group 2 has not adopted it yet"), "{one}");
        let two = not_everywhere(3, &[2, 4]).unwrap();
        assert!(two.contains("groups 2, 4 have not adopted it yet"), "{two}");
    }
}
