//! `holdfast access role`: which verbs are allowed for which names.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use holdfast_core::{BuiltInRole, RoleName, Roles};
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::{encode, v1};
use serde::Serialize;

use super::lockout::{self, ForceArgs};
use super::policy_file::RuleEntry;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output::{self, Show};
use crate::text::table;

#[derive(Debug, Subcommand)]
pub(crate) enum RoleVerb {
    Create(CreateArgs),
    List(ListArgs),
    Delete(DeleteArgs),
}

/// Creates a role, or with --replace gives it other rules.
///
/// A rule is VERBS:PATTERN for locks, or VERBS for the cluster. VERBS are separated by commas. PATTERN is a lock name, or
/// a prefix and *. To use locks at all, a client needs `connect`.
#[derive(Debug, Args)]
#[command(after_help = "Verbs for names:
  read shared exclusive permit elect wound transfer efficiency break move freeze set-permits
Verbs for the cluster:
  connect sessions kill-session cluster-read cluster-change snapshot metrics access

Examples:
  holdfast access role create billing --allow 'read,exclusive:billing/*' --allow connect
  holdfast access role create monitor --allow 'read:*' --allow connect,cluster-read,metrics
  holdfast access role create billing --replace --allow 'read:billing/*' --allow connect")]
pub(crate) struct CreateArgs {
    /// Lower-case letters, digits, - and _.
    name: String,
    /// What the role allows. Can be given several times.
    #[arg(long = "allow", value_name = "RULE", required = true, value_parser = parse_rule)]
    rules: Vec<v1::AccessRule>,
    /// Gives other rules to a role that there is. All users who have it have them at once.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    force: ForceArgs,
}

/// Lists the roles and their rules, with the built-in ones.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access role list
  holdfast access role list --output json")]
pub(crate) struct ListArgs {}

/// Deletes a role, and takes it from all users who have it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast access role delete billing")]
pub(crate) struct DeleteArgs {
    /// The role.
    name: String,
    #[command(flatten)]
    force: ForceArgs,
}

#[derive(Debug, Serialize)]
struct RoleList {
    roles: Vec<Role>,
}

#[derive(Debug, Serialize)]
struct Role {
    name: String,
    is_built_in: bool,
    rules: Vec<RuleEntry>,
}

impl RoleList {
    fn of(roles: &Roles) -> RoleList {
        let built_in = BuiltInRole::ALL.into_iter().map(|role| Role {
            name: role.name().to_owned(),
            is_built_in: true,
            rules: role.rules().iter().map(encode::access::rule).map(RuleEntry::from).collect(),
        });
        let own = encode::access::policy(roles).roles.into_iter().map(|role| Role {
            name: role.name,
            is_built_in: false,
            rules: role.rules.into_iter().map(RuleEntry::from).collect(),
        });
        RoleList { roles: built_in.chain(own).collect() }
    }
}

impl Show for RoleList {
    fn to_table(&self) -> String {
        let mut rows = Vec::new();
        for role in &self.roles {
            let kind = if role.is_built_in { "built-in" } else { "own" };
            for (number, rule) in role.rules.iter().enumerate() {
                let (name, kind) = if number == 0 { (&*role.name, kind) } else { ("", "") };
                let pattern = rule.pattern.as_deref().unwrap_or("the cluster");
                rows.push(vec![name.into(), kind.into(), pattern.into(), rule.verbs.join(" ")]);
            }
        }
        table(&["ROLE", "KIND", "FOR", "VERBS"], &rows)
    }
}

pub(super) async fn run(verb: RoleVerb, global: &Global) -> Result<ExitCode, Problem> {
    match verb {
        RoleVerb::Create(CreateArgs { name, rules, replace, force }) => {
            let calls = global.calls()?;
            let found = super::load(&calls).await?;
            if !replace && found.content.roles.roles.keys().any(|role| role.as_str() == name) {
                let words = format!(
                    "there is a role {name}, and nothing was changed; `holdfast access role list` shows its rules, and \
                     `holdfast access role create {name} --replace --allow RULE` gives it others"
                );
                return Err(Problem::new(Code::Usage, words));
            }
            let words = format!("the role {name} has {} rules", rules.len());
            let changes = vec![Change::PutRole(v1::AccessRole { name, rules })];
            lockout::check(&force, global, &calls, &found, &changes).await?;
            super::make(global, changes, false, words).await
        }
        RoleVerb::List(_) => {
            let policy = super::load(&global.calls()?).await?;
            output::show(global.output, &RoleList::of(&policy.content.roles))
        }
        RoleVerb::Delete(DeleteArgs { name, force }) => {
            let calls = global.calls()?;
            let found = super::load(&calls).await?;
            let known = RoleList::of(&found.content.roles);
            if !known.roles.iter().any(|role| role.name == name) {
                let words = format!(
                    "there is no role {name}, and nothing was changed; `holdfast access role list` shows the roles"
                );
                return Err(Problem::new(Code::Usage, words));
            }
            let has_it =
                |roles: &BTreeSet<RoleName>| roles.iter().any(|role| role.as_str() == name);
            let users = found.content.roles.bindings.iter().filter(|(_, roles)| has_it(roles));
            let users: Vec<String> = users.map(|(user, _)| user.to_string()).collect();
            let from = match users.is_empty() {
                true => "no user had it".to_owned(),
                false => format!("took it from {}", users.join(", ")),
            };
            let words = format!("deleted the role {name}: {from}");
            let changes = vec![Change::DeleteRole(name)];
            lockout::check(&force, global, &calls, &found, &changes).await?;
            super::make(global, changes, false, words).await
        }
    }
}

/// The node says which verbs it does not know.
fn parse_rule(text: &str) -> Result<v1::AccessRule, String> {
    let (verbs, pattern) = text.split_once(':').unwrap_or((text, ""));
    if text.contains(':') && pattern.is_empty() {
        return Err("a rule is VERBS:PATTERN, or VERBS for the cluster".to_owned());
    }
    let verbs = verbs.split(',').map(|verb| verb.trim().to_owned()).collect();
    Ok(v1::AccessRule { verbs, pattern: pattern.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_verbs_and_perhaps_a_pattern_in_which_there_may_be_colons() {
        let rule = parse_rule("read,exclusive:wallet:eu/*").unwrap();
        assert_eq!(
            (rule.verbs.join(" "), &*rule.pattern),
            ("read exclusive".into(), "wallet:eu/*")
        );
        assert_eq!(parse_rule("connect").unwrap().pattern, "");
        assert!(parse_rule("read:").is_err());
    }
}
