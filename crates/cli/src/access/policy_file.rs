//! A policy as a file: roles, which users have them, and quotas. Tokens are not part of it.
//!
//! ```toml
//! [[roles.billing.rules]]
//! verbs = ["read", "exclusive"]
//! pattern = "billing/*"
//!
//! [[roles.billing.rules]]
//! verbs = ["connect"]
//!
//! [users]
//! "cert:billing" = ["billing", "reader"]
//!
//! [quotas."cert:billing"]
//! locks = 200
//! rate = 100
//!
//! [quotas."reports/*"]
//! locks = 20
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use holdfast_core::{BuiltInRole, Quota, QuotaSubject, Roles, Rule};
use holdfast_proto::{decode, encode, v1};
use serde::{Deserialize, Serialize};

use crate::exit::{Code, Problem};

/// More than a policy can have.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    #[serde(default)]
    roles: BTreeMap<String, RoleEntry>,
    #[serde(default)]
    users: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    quotas: BTreeMap<String, QuotaEntry>,
}

/// What a policy file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyContent {
    pub(super) roles: Roles,
    pub(super) quotas: BTreeMap<QuotaSubject, Quota>,
}

impl PolicyContent {
    pub(super) fn of(
        policy: v1::AccessPolicy,
        quotas: Vec<v1::AccessQuota>,
    ) -> Result<PolicyContent, String> {
        let roles = decode::access_policy(policy).map_err(|failure| failure.message)?;
        let quotas = decode::access_quotas(quotas).map_err(|failure| failure.message)?;
        Ok(PolicyContent { roles, quotas })
    }
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sessions: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locks: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleEntry {
    #[serde(default)]
    rules: Vec<RuleEntry>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleEntry {
    pub(super) verbs: Vec<String>,
    /// A lock name, or a prefix and `*`. None: the verbs are those of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pattern: Option<String>,
}

impl From<v1::AccessRule> for RuleEntry {
    fn from(rule: v1::AccessRule) -> RuleEntry {
        RuleEntry { verbs: rule.verbs, pattern: Some(rule.pattern).filter(|text| !text.is_empty()) }
    }
}

impl PolicyFile {
    pub(super) fn of(content: &PolicyContent) -> PolicyFile {
        let policy = encode::access::policy(&content.roles);
        let quota = |(subject, quota): (&QuotaSubject, &Quota)| {
            let Quota { sessions, locks, waits, rate, burst } = *quota;
            (subject.to_string(), QuotaEntry { sessions, locks, waits, rate, burst })
        };
        let role = |role: v1::AccessRole| {
            (role.name, RoleEntry { rules: role.rules.into_iter().map(RuleEntry::from).collect() })
        };
        let user = |binding: v1::AccessBinding| (binding.principal, binding.roles);
        PolicyFile {
            roles: policy.roles.into_iter().map(role).collect(),
            users: policy.bindings.into_iter().map(user).collect(),
            quotas: content.quotas.iter().map(quota).collect(),
        }
    }

    pub(super) fn to_toml(&self) -> Result<String, Problem> {
        let broken = |error: toml::ser::Error| Problem::new(Code::Unavailable, error.to_string());
        toml::to_string(self).map_err(broken)
    }

    fn into_content(self) -> Result<PolicyContent, String> {
        let rule = |rule: RuleEntry| v1::AccessRule {
            verbs: rule.verbs,
            pattern: rule.pattern.unwrap_or_default(),
        };
        let role = |(name, role): (String, RoleEntry)| v1::AccessRole {
            name,
            rules: role.rules.into_iter().map(rule).collect(),
        };
        let binding = |(principal, roles)| v1::AccessBinding { principal, roles };
        let quota = |(subject, quota): (String, QuotaEntry)| {
            let QuotaEntry { sessions, locks, waits, rate, burst } = quota;
            v1::AccessQuota { subject, sessions, locks, waits, rate, burst }
        };
        let policy = v1::AccessPolicy {
            roles: self.roles.into_iter().map(role).collect(),
            bindings: self.users.into_iter().map(binding).collect(),
        };
        let empty = self.quotas.iter().find(|(_, quota)| **quota == QuotaEntry::default());
        if let Some((subject, _)) = empty {
            return Err(format!("the quota of {subject} limits nothing; leave it out"));
        }
        PolicyContent::of(policy, self.quotas.into_iter().map(quota).collect())
    }
}

/// What the file says, checked as a node checks it.
pub(super) fn load(path: &Path) -> Result<PolicyContent, Problem> {
    let wrong = |words: &str| {
        Problem::new(Code::Usage, format!("{}: {}", path.display(), words.trim_end()))
    };
    let length = std::fs::metadata(path).map_err(|error| wrong(&error.to_string()))?.len();
    if length > FILE_BYTES_MAX {
        return Err(wrong("it is larger than a policy can be"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
    parse(&text).map_err(|words| wrong(&words))
}

fn parse(text: &str) -> Result<PolicyContent, String> {
    let file: PolicyFile = toml::from_str(text).map_err(|error| error.to_string())?;
    for (user, roles) in &file.users {
        for role in roles {
            let is_built_in = BuiltInRole::ALL.into_iter().any(|known| known.name() == role);
            if !is_built_in && !file.roles.contains_key(role) {
                return Err(format!(
                    "the user {user} has the role '{role}', which is not in the file; write [[roles.{role}.rules]]"
                ));
            }
        }
    }
    file.into_content()
}

/// One thing by which two policies differ.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Difference {
    /// Whether the new policy has it, and the old one does not; else the reverse.
    is_added: bool,
    what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.is_added { '+' } else { '-' }, self.what)
    }
}

/// What changes if the second takes the place of the first.
pub(super) fn differences(before: &PolicyContent, after: &PolicyContent) -> Vec<Difference> {
    let (before, after) = (statements(before), statements(after));
    let removed = before.difference(&after).map(|what| (false, what));
    let added = after.difference(&before).map(|what| (true, what));
    removed
        .chain(added)
        .map(|(is_added, what)| Difference { is_added, what: what.clone() })
        .collect()
}

/// The policy, sentence by sentence.
fn statements(policy: &PolicyContent) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (role, rules) in &policy.roles.roles {
        all.insert(format!("role {role}"));
        all.extend(rules.iter().map(|rule| format!("role {role} allows {}", in_words(rule))));
    }
    for (principal, roles) in &policy.roles.bindings {
        all.extend(roles.iter().map(|role| format!("user {principal} has role {role}")));
    }
    let quotas = policy.quotas.iter();
    all.extend(quotas.map(|(subject, quota)| format!("quota of {subject}: {quota}")));
    all
}

pub(super) fn in_words(rule: &Rule) -> String {
    match rule {
        Rule::Names { verbs, pattern } => format!("{verbs} for {pattern}"),
        Rule::Cluster { verbs } => format!("{verbs} for the cluster"),
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const TEXT: &str = r#"
        [[roles.billing.rules]]
        verbs = ["read", "exclusive"]
        pattern = "billing/*"
        [[roles.billing.rules]]
        verbs = ["connect"]
        [users]
        "cert:billing" = ["billing", "reader"]
        [quotas."cert:billing"]
        locks = 200
        rate = 100
        [quotas."reports/*"]
        waits = 0
    "#;

    #[test]
    fn a_policy_that_is_shown_is_the_same_when_it_is_read_again() {
        let roles = parse(TEXT).unwrap();
        let text = PolicyFile::of(&roles).to_toml().unwrap();
        assert_eq!(parse(&text).unwrap(), roles, "{text}");
        assert_eq!(differences(&roles, &roles), []);
    }

    #[test]
    fn differences_name_roles_rules_and_users() {
        let before = parse(TEXT).unwrap();
        let after = TEXT.replace("\"exclusive\"", "\"shared\"").replace(", \"reader\"", "");
        let after = after.replace("locks = 200", "locks = 100");
        let found = differences(&before, &parse(&after).unwrap());
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "- quota of cert:billing: 200 locks, 100 requests a second",
                "- role billing allows read exclusive for billing/*",
                "- user cert:billing has role reader",
                "+ quota of cert:billing: 100 locks, 100 requests a second",
                "+ role billing allows read shared for billing/*",
            ]
        );
    }

    #[test]
    fn a_wrong_policy_file_is_refused_with_the_word_that_is_wrong() {
        for (from, to, word) in [
            ("\"read\"", "\"rread\"", "rread"),
            ("pattern =", "patern =", "patern"),
            ("billing/*", "bill*ing", "pattern"),
            ("cert:billing", "billing", "principal"),
            ("\"reader\"]", "\"readers\"]", "readers"),
            ("reports/*", "reports", "a quota is for"),
            ("waits = 0", "", "limits nothing"),
            ("waits = 0", "waits = -1", "waits"),
            ("waits = 0", "burst = 5", "a burst needs a rate"),
            ("verbs = [\"connect\"]", "verbs = [\"read\"]", "without a pattern"),
        ] {
            let words = parse(&TEXT.replace(from, to)).unwrap_err();
            assert!(words.contains(word), "{to}: {words}");
        }
    }
}
