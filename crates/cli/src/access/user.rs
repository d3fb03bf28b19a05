//! `holdfast access user`: who has which roles.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use holdfast_core::Principal;
use holdfast_proto::v1::access_change::Change;
use serde::Serialize;

use super::lockout::{self, ForceArgs};
use super::token::{self, TokenArgs};
use super::{Changed, Policy};
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output::{self, Show};
use crate::text::table;

#[derive(Debug, Subcommand)]
pub(crate) enum UserVerb {
    Create(CreateArgs),
    Grant(GrantArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Creates a user: gives it roles, and a token if it is token:NAME.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access user create token:billing --role user --to billing.token
  holdfast access user create cert:reports --role reader --role billing")]
pub(crate) struct CreateArgs {
    /// token:NAME, cert:NAME for the certificate of client NAME, or jwt:ISSUER:SUBJECT.
    #[arg(value_parser = super::parse_principal)]
    principal: Principal,
    /// A role that the user gets. Can be given several times.
    #[arg(long = "role", value_name = "ROLE", required = true)]
    roles: Vec<String>,
    #[command(flatten)]
    token: TokenArgs,
}

/// Gives a user more roles. A user from whom everything was taken may act again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access user grant cert:reports billing")]
pub(crate) struct GrantArgs {
    /// The user.
    #[arg(value_parser = super::parse_principal)]
    principal: Principal,
    /// The roles.
    #[arg(value_name = "ROLE", required = true)]
    roles: Vec<String>,
}

/// Lists the users: their roles, the number of their tokens, and those from whom everything was taken.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access user list
  holdfast access user list --output json")]
pub(crate) struct ListArgs {}

/// Takes everything from a user: its roles and its tokens; or, with --role, these roles alone.
///
/// The user is granted nothing from then on. Its heartbeats are refused, so its locks end within their TTL. The last
/// administrator cannot be revoked.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access user revoke token:billing
  holdfast access user revoke token:billing --end-sessions
  holdfast access user revoke token:billing --role operator")]
pub(crate) struct RevokeArgs {
    /// The user.
    #[arg(value_parser = super::parse_principal)]
    principal: Principal,
    /// Takes this role alone. Can be given several times.
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// Ends the sessions of the user at once, and so frees its locks.
    #[arg(long)]
    end_sessions: bool,
    #[command(flatten)]
    force: ForceArgs,
}

#[derive(Debug, Serialize)]
struct Users {
    users: Vec<User>,
}

#[derive(Debug, Default, Serialize)]
struct User {
    principal: String,
    roles: Vec<String>,
    tokens: u64,
    /// Everything was taken from it.
    is_banned: bool,
}

impl Users {
    fn of(policy: &Policy) -> Users {
        let mut users: BTreeMap<String, User> = BTreeMap::new();
        for (principal, roles) in &policy.content.roles.bindings {
            let roles = roles.iter().map(ToString::to_string).collect();
            users.entry(principal.to_string()).or_default().roles = roles;
        }
        for token in &policy.tokens {
            users.entry(token.principal.clone()).or_default().tokens += 1;
        }
        for principal in &policy.banned {
            users.entry(principal.to_string()).or_default().is_banned = true;
        }
        let users = users.into_iter().map(|(principal, user)| User { principal, ..user });
        Users { users: users.collect() }
    }
}

impl Users {
    /// Who creates a user does not mean to give more roles to one who is there.
    fn check_creation(&self, principal: &Principal) -> Result<(), String> {
        match self.users.iter().find(|user| user.principal == principal.as_str()) {
            None => Ok(()),
            Some(user) if user.is_banned => Err(format!(
                "everything was taken from {principal}, and nothing was changed; `holdfast access user grant {principal} \
                 ROLE` lets it act again"
            )),
            Some(user) => Err(format!(
                "there is a user {principal} with the roles {}, and nothing was changed; `holdfast access user grant \
                 {principal} ROLE` gives it more roles",
                user.roles.join(", ")
            )),
        }
    }

    /// What the user has now, for people.
    fn roles_in_force(&self, principal: &Principal) -> String {
        match self.users.iter().find(|user| user.principal == principal.as_str()) {
            Some(user) if user.is_banned => "it may do nothing now".to_owned(),
            Some(user) if !user.roles.is_empty() => {
                format!("its roles are now {}", user.roles.join(", "))
            }
            _ => "it has no roles now".to_owned(),
        }
    }

    /// Whether the user is there: a typing error must not give rights to a name that another user gets later.
    fn check_grant(&self, principal: &Principal) -> Result<(), String> {
        let is_known = self.users.iter().any(|user| user.principal == principal.as_str());
        // A JWT is made by its issuer, so the policy need not name its user.
        if is_known || principal.as_str().starts_with("jwt:") {
            return Ok(());
        }
        Err(format!(
            "there is no user {principal}, and nothing was changed; `holdfast access user create {principal} --role ROLE` \
             creates it"
        ))
    }

    /// Whether there is something to take: a typing error must not look like a revocation.
    fn check_revocation(&self, principal: &Principal, roles: &[String]) -> Result<(), String> {
        let known = self.users.iter().find(|user| user.principal == principal.as_str());
        match known {
            // The roles of a JWT stand in it, so the policy need not name its user.
            None if principal.as_str().starts_with("jwt:") && roles.is_empty() => Ok(()),
            None => Err(format!(
                "there is no user {principal}, and nothing was changed; `holdfast access user list` shows the users"
            )),
            Some(user) => match roles.iter().find(|role| !user.roles.contains(role)) {
                Some(role) => Err(format!(
                    "{principal} does not have the role {role}, and nothing was changed; its roles are: {}",
                    user.roles.join(", ")
                )),
                None => Ok(()),
            },
        }
    }
}

impl Show for Users {
    fn to_table(&self) -> String {
        if self.users.is_empty() {
            return "there are no users\n".to_owned();
        }
        let row = |user: &User| {
            let roles = match (user.is_banned, user.roles.is_empty()) {
                (true, _) => "everything was taken from it".to_owned(),
                (false, true) => "none".to_owned(),
                (false, false) => user.roles.join(", "),
            };
            vec![user.principal.clone(), user.tokens.to_string(), roles]
        };
        let rows: Vec<Vec<String>> = self.users.iter().map(row).collect();
        table(&["USER", "TOKENS", "ROLES"], &rows)
    }
}

pub(super) async fn run(verb: UserVerb, global: &Global) -> Result<ExitCode, Problem> {
    if let UserVerb::Create(CreateArgs { principal, .. })
    | UserVerb::Grant(GrantArgs { principal, .. }) = &verb
    {
        let users = Users::of(&super::load(&global.calls()?).await?);
        let checked = match &verb {
            UserVerb::Create(_) => users.check_creation(principal),
            _ => users.check_grant(principal),
        };
        checked.map_err(|words| Problem::new(Code::Usage, words))?;
    }
    match verb {
        UserVerb::Create(CreateArgs { principal, roles, token }) if principal.is_token() => {
            let changes = super::grants(&principal, &roles).collect();
            token::create(global, &principal, token, changes).await
        }
        UserVerb::Create(CreateArgs { principal, token, .. }) if !token.is_default() => {
            let words = format!(
                "--expires, --note and --to are for the token of a token:NAME, and {principal} has none: the end of a \
                 certificate or of a JWT stands in itself; nothing was changed"
            );
            Err(Problem::new(Code::Usage, words))
        }
        UserVerb::Create(CreateArgs { principal, roles, .. })
        | UserVerb::Grant(GrantArgs { principal, roles }) => {
            let changes = super::grants(&principal, &roles).collect();
            let calls = global.calls()?;
            let generation = super::change(&calls, changes, false).await?;
            let in_force = Users::of(&super::load(&calls).await?).roles_in_force(&principal);
            let words = format!("granted {} to {principal}; {in_force}", roles.join(", "));
            output::show(global.output, &Changed { generation, words })
        }
        UserVerb::List(_) => {
            let policy = super::load(&global.calls()?).await?;
            output::show(global.output, &Users::of(&policy))
        }
        UserVerb::Revoke(RevokeArgs { principal, roles, end_sessions, force }) => {
            let calls = global.calls()?;
            let policy = super::load(&calls).await?;
            Users::of(&policy)
                .check_revocation(&principal, &roles)
                .map_err(|words| Problem::new(Code::Usage, words))?;
            let ended = if end_sessions { ", and ended its sessions" } else { "" };
            let (changes, words) = match roles.is_empty() {
                true => (
                    vec![Change::Ban(principal.to_string())],
                    format!("took everything from {principal}{ended}"),
                ),
                false => (
                    roles
                        .iter()
                        .map(|role| Change::Revoke(super::binding(&principal, role)))
                        .collect(),
                    format!("took the roles {} from {principal}{ended}", roles.join(", ")),
                ),
            };
            lockout::check(&force, global, &calls, &policy, &changes).await?;
            let generation = super::change(&calls, changes, end_sessions).await?;
            // An administrator that has taken the right from itself cannot look.
            let in_force = match super::load(&calls).await {
                Ok(policy) => format!("; {}", Users::of(&policy).roles_in_force(&principal)),
                Err(_) => String::new(),
            };
            output::show(global.output, &Changed { generation, words: words + &in_force })
        }
    }
}
