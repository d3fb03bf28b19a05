//! Whether a change of the policy locks out: the caller itself, or all administrators.
//!
//! A node refuses a change after which no principal is bound to a role with the verb `access`. It cannot refuse what is
//! found here: a caller that takes the verb, or its token, from itself; and administrators whose tokens have all expired.
//! Caveat: whether a certificate or a JWT of an administrator still exists is not known to the cluster.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use holdfast_client::unary::Unary;
use holdfast_core::{Principal, RoleName, Roles, Rule, Verb};
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::{AccessToken, decode, v1};

use super::Policy;
use crate::exit::{Code, Problem};
use crate::global::Global;

#[derive(Debug, Args)]
pub(super) struct ForceArgs {
    /// Makes the change even if it takes the right to change the policy from you.
    #[arg(long)]
    force: bool,
}

/// By what the caller proves who it is.
struct Caller {
    principal: Option<Principal>,
    /// In its credential.
    claimed: Vec<RoleName>,
    /// The id of its token, in the form of the API.
    token: Option<String>,
}

impl Caller {
    async fn load(calls: &Unary, auth_file: Option<&Path>) -> Result<Caller, Problem> {
        let found = calls.who_am_i().await?;
        let token = auth_file.and_then(|path| std::fs::read_to_string(path).ok());
        let token = token.and_then(|text| text.trim().parse::<AccessToken>().ok());
        let claimed = found.claimed_roles.iter().filter_map(|role| RoleName::parse(role).ok());
        Ok(Caller {
            principal: Principal::parse(&found.principal).ok(),
            claimed: claimed.collect(),
            token: token.map(|token| format!("{:016x}", token.id)),
        })
    }

    fn may_change_policy(&self, roles: &Roles, banned: &BTreeSet<Principal>) -> bool {
        self.principal.as_ref().is_some_and(|principal| {
            let bound = roles.bindings.get(principal).into_iter().flatten();
            !banned.contains(principal)
                && bound.chain(&self.claimed).any(|role| allows_access(roles, role))
        })
    }
}

/// Fails, with what would happen, if the changes lock out the caller or all administrators, unless that is forced.
pub(super) async fn check(
    force: &ForceArgs,
    global: &Global,
    calls: &Unary,
    policy: &Policy,
    changes: &[Change],
) -> Result<(), Problem> {
    if force.force {
        return Ok(());
    }
    let caller = Caller::load(calls, global.auth_file.as_deref()).await?;
    match consequence(&caller, policy, changes, unix_ms()) {
        None => Ok(()),
        Some(words) => {
            let words = format!("nothing was changed: {words}. --force makes the change");
            Err(Problem::new(Code::Usage, words))
        }
    }
}

/// What the changes would do; none if they lock out no one, or if a node refuses them anyway.
fn consequence(
    caller: &Caller,
    policy: &Policy,
    changes: &[Change],
    unix_ms: u64,
) -> Option<String> {
    let mut after = PolicyAfter {
        roles: policy.content.roles.clone(),
        tokens: policy.tokens.clone(),
        banned: policy.banned.clone(),
    };
    changes.iter().for_each(|change| after.make(change));
    let administrators: BTreeSet<&Principal> = after.administrators(|_| true).collect();
    if administrators.is_empty() {
        // The answer of the cluster says what to do.
        return None;
    }
    let able: Vec<String> = after
        .administrators(|token| token.expires_at_unix_ms.is_none_or(|end| end > unix_ms))
        .map(ToString::to_string)
        .collect();
    if able.is_empty() {
        let names: Vec<String> = administrators.into_iter().map(ToString::to_string).collect();
        return Some(format!(
            "no administrator could prove who it is, because all tokens of {} have expired; only `holdfast access reset` \
             on the machine of a node would help. Create a token first: `holdfast access token create {} --to FILE`",
            names.join(", "),
            names.first().map_or("token:NAME", String::as_str)
        ));
    }
    let principal = caller.principal.as_ref()?;
    let could = caller.may_change_policy(&policy.content.roles, &policy.banned);
    if could && !caller.may_change_policy(&after.roles, &after.banned) {
        return Some(format!(
            "you are {principal}, and could not see or change the policy any more. Only {} could give that back",
            able.join(", ")
        ));
    }
    let own = caller.token.as_ref()?;
    let is_own = |token: &v1::AccessTokenInfo| token.id == *own;
    (policy.tokens.iter().any(is_own) && !after.tokens.iter().any(is_own)).then(|| {
        format!(
            "{own} is the token that this command shows, and the cluster would refuse the next command. Create another one \
             first: `holdfast access token create {principal} --to FILE`"
        )
    })
}

/// The policy as the changes leave it, as far as administrators go.
struct PolicyAfter {
    roles: Roles,
    tokens: Vec<v1::AccessTokenInfo>,
    banned: BTreeSet<Principal>,
}

impl PolicyAfter {
    /// A change that is not possible changes nothing here: the cluster refuses it.
    fn make(&mut self, change: &Change) {
        match change {
            Change::PutRole(role) => {
                let alone = v1::AccessPolicy { roles: vec![role.clone()], bindings: Vec::new() };
                if let Ok(decoded) = decode::access_policy(alone) {
                    self.roles.roles.extend(decoded.roles);
                }
            }
            Change::DeleteRole(name) => {
                let Ok(role) = RoleName::parse(name) else { return };
                self.roles.roles.remove(&role);
                self.roles.bindings.values_mut().for_each(|roles| {
                    roles.remove(&role);
                });
            }
            Change::Revoke(binding) => {
                let Ok(principal) = Principal::parse(&binding.principal) else { return };
                let Some(bound) = self.roles.bindings.get_mut(&principal) else { return };
                bound.retain(|role| !binding.roles.iter().any(|taken| taken == role.as_str()));
            }
            Change::Ban(name) => {
                let Ok(principal) = Principal::parse(name) else { return };
                self.roles.bindings.remove(&principal);
                self.tokens.retain(|token| token.principal != *name);
                self.banned.insert(principal);
            }
            Change::RevokeToken(id) => self.tokens.retain(|token| token.id != *id),
            Change::Replace(policy) => {
                if let Ok(roles) = decode::access_policy(policy.clone()) {
                    self.roles = roles;
                }
            }
            Change::Grant(_) | Change::PutToken(_) | Change::SetQuotas(_) => {}
        }
    }

    /// Those that are bound to a role that may change the policy; of token users, those with a token that counts.
    fn administrators(
        &self,
        counts: impl Fn(&v1::AccessTokenInfo) -> bool,
    ) -> impl Iterator<Item = &Principal> {
        let is_bound =
            |roles: &BTreeSet<RoleName>| roles.iter().any(|role| allows_access(&self.roles, role));
        let bound = self.roles.bindings.iter().filter(move |(_, roles)| is_bound(roles));
        bound.map(|(principal, _)| principal).filter(move |principal| {
            let has_token = |token: &v1::AccessTokenInfo| {
                token.principal == principal.as_str() && counts(token)
            };
            !principal.is_token() || self.tokens.iter().any(has_token)
        })
    }
}

fn allows_access(roles: &Roles, role: &RoleName) -> bool {
    let allows =
        |rule: &Rule| matches!(rule, Rule::Cluster { verbs } if verbs.contains(Verb::Access));
    roles.rules_of(role).iter().any(allows)
}

fn unix_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::policy_file::PolicyContent;

    const OWN: &str = "00000000000000aa";
    const OTHER: &str = "00000000000000bb";
    const NOW: u64 = 1_000;

    /// Two administrators with a token each: `token:a`, who asks, and `token:b`.
    fn policy(expires_of_b: Option<u64>) -> Policy {
        let binding = |principal: &str, roles: &[&str]| v1::AccessBinding {
            principal: principal.to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        };
        let bindings = vec![binding("token:a", &["ops", "reader"]), binding("token:b", &["admin"])];
        let rule = v1::AccessRule { verbs: vec!["access".to_owned()], pattern: String::new() };
        let roles = vec![v1::AccessRole { name: "ops".to_owned(), rules: vec![rule] }];
        let token = |id: &str, principal: &str, expires_at_unix_ms| v1::AccessTokenInfo {
            id: id.to_owned(),
            principal: principal.to_owned(),
            expires_at_unix_ms,
            note: String::new(),
        };
        let content = PolicyContent::of(v1::AccessPolicy { roles, bindings }, Vec::new()).unwrap();
        Policy {
            generation: 1,
            content,
            quota_use: Vec::new(),
            tokens: vec![token(OWN, "token:a", None), token(OTHER, "token:b", expires_of_b)],
            banned: BTreeSet::new(),
        }
    }

    fn told(policy: &Policy, change: Change) -> Option<String> {
        let principal = Principal::parse("token:a").ok();
        let caller = Caller { principal, claimed: Vec::new(), token: Some(OWN.to_owned()) };
        consequence(&caller, policy, &[change], NOW)
    }

    fn revoke(principal: &str, role: &str) -> Change {
        let principal = Principal::parse(principal).unwrap();
        Change::Revoke(crate::access::binding(&principal, role))
    }

    fn role(verbs: &[&str]) -> Change {
        let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        let rules = vec![v1::AccessRule { verbs, pattern: String::new() }];
        Change::PutRole(v1::AccessRole { name: "ops".to_owned(), rules })
    }

    #[test]
    fn a_caller_that_takes_the_right_from_itself_is_told_which_users_could_give_it_back() {
        let changes = [
            revoke("token:a", "ops"),
            Change::Ban("token:a".to_owned()),
            Change::DeleteRole("ops".to_owned()),
            role(&["connect"]),
            Change::Replace(v1::AccessPolicy {
                roles: Vec::new(),
                bindings: vec![crate::access::binding(
                    &Principal::parse("token:b").unwrap(),
                    "admin",
                )],
            }),
        ];
        for change in changes {
            let words = told(&policy(None), change.clone()).unwrap_or_default();
            assert!(words.contains("you are token:a"), "{change:?}: {words}");
            assert!(words.contains("Only token:b could"), "{change:?}: {words}");
        }
        let words = told(&policy(None), Change::RevokeToken(OWN.to_owned())).unwrap();
        assert!(words.contains("would refuse the next command"), "{words}");
    }

    #[test]
    fn a_change_that_locks_out_no_one_is_made_without_a_word() {
        for change in [
            revoke("token:b", "admin"),
            revoke("token:a", "reader"),
            Change::Ban("token:b".to_owned()),
            Change::RevokeToken(OTHER.to_owned()),
            role(&["access", "connect"]),
        ] {
            assert_eq!(told(&policy(None), change.clone()), None, "{change:?}");
        }
    }

    #[test]
    fn administrators_whose_tokens_have_expired_do_not_count() {
        let words = told(&policy(Some(NOW)), Change::Ban("token:a".to_owned())).unwrap();
        assert!(words.contains("all tokens of token:b have expired"), "{words}");
        let words = told(&policy(Some(NOW + 1)), Change::Ban("token:a".to_owned())).unwrap();
        assert!(words.contains("Only token:b could"), "{words}");
    }

    #[test]
    fn what_the_cluster_refuses_is_left_to_its_answer() {
        let mut alone = policy(None);
        alone.tokens.retain(|token| token.id == OWN);
        assert_eq!(told(&alone, Change::Ban("token:a".to_owned())), None);
    }
}
