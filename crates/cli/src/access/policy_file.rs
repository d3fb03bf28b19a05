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
use toml::Spanned;

use crate::exit::{Code, Problem};

/// More than a policy can have.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    #[serde(default)]
    roles: BTreeMap<String, RoleEntry>,
    #[serde(default)]
    users: BTreeMap<String, Spanned<Vec<String>>>,
    #[serde(default)]
    quotas: BTreeMap<String, Spanned<QuotaEntry>>,
}

/// What is wrong with a policy file, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PolicyFileError {
    /// From 1 on. What is wrong with the file as a whole is told of its first line.
    pub(super) line: usize,
    words: String,
}

impl fmt::Display for PolicyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.words)
    }
}

impl PolicyFileError {
    fn at(text: &str, offset: usize, words: impl Into<String>) -> PolicyFileError {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        PolicyFileError { line, words: words.into() }
    }
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
    rules: Vec<Spanned<RuleEntry>>,
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
            (subject.to_string(), unplaced(QuotaEntry { sessions, locks, waits, rate, burst }))
        };
        let rule = |rule: v1::AccessRule| unplaced(RuleEntry::from(rule));
        let role = |role: v1::AccessRole| {
            (role.name, RoleEntry { rules: role.rules.into_iter().map(rule).collect() })
        };
        let user = |binding: v1::AccessBinding| (binding.principal, unplaced(binding.roles));
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

    fn to_content(&self, text: &str) -> Result<PolicyContent, PolicyFileError> {
        let (mut roles, mut bindings, mut quotas) = (Vec::new(), Vec::new(), Vec::new());
        for (name, entry) in &self.roles {
            for rule in &entry.rules {
                let alone = role(name, [rule.get_ref()]);
                check_alone(text, rule, vec![alone], Vec::new(), Vec::new())?;
            }
            roles.push(role(name, entry.rules.iter().map(Spanned::get_ref)));
        }
        for (principal, of_user) in &self.users {
            let binding = v1::AccessBinding {
                principal: principal.clone(),
                roles: of_user.get_ref().clone(),
            };
            let named = of_user.get_ref().iter().filter_map(|name| {
                let entry = self.roles.get(name)?;
                Some(role(name, entry.rules.iter().map(Spanned::get_ref)))
            });
            check_alone(text, of_user, named.collect(), vec![binding.clone()], Vec::new())?;
            bindings.push(binding);
        }
        for (subject, entry) in &self.quotas {
            let QuotaEntry { sessions, locks, waits, rate, burst } = *entry.get_ref();
            let wrong = |words: String| PolicyFileError::at(text, entry.span().start, words);
            if *entry.get_ref() == QuotaEntry::default() {
                let words = format!("the quota of {subject} limits nothing; leave it out");
                return Err(wrong(words));
            }
            let quota =
                v1::AccessQuota { subject: subject.clone(), sessions, locks, waits, rate, burst };
            check_alone(text, entry, Vec::new(), Vec::new(), vec![quota.clone()])?;
            quotas.push(quota);
        }
        PolicyContent::of(v1::AccessPolicy { roles, bindings }, quotas)
            .map_err(|words| PolicyFileError::at(text, 0, words))
    }
}

/// Of what was not read from a file.
fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

fn role<'a>(name: &str, rules: impl IntoIterator<Item = &'a RuleEntry>) -> v1::AccessRole {
    let rule = |rule: &RuleEntry| v1::AccessRule {
        verbs: rule.verbs.clone(),
        pattern: rule.pattern.clone().unwrap_or_default(),
    };
    v1::AccessRole { name: name.to_owned(), rules: rules.into_iter().map(rule).collect() }
}

/// Finds what is wrong with one part of the file, by the check of the whole.
fn check_alone<T>(
    text: &str,
    part: &Spanned<T>,
    roles: Vec<v1::AccessRole>,
    bindings: Vec<v1::AccessBinding>,
    quotas: Vec<v1::AccessQuota>,
) -> Result<(), PolicyFileError> {
    let checked = PolicyContent::of(v1::AccessPolicy { roles, bindings }, quotas);
    checked.map(drop).map_err(|words| PolicyFileError::at(text, part.span().start, words))
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
    let bytes = std::fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    parse(&bytes).map_err(|error| wrong(&error.to_string()))
}

fn parse(bytes: &[u8]) -> Result<PolicyContent, PolicyFileError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        PolicyFileError::at(&valid, valid.len(), "the file is not UTF-8 text")
    })?;
    let file: PolicyFile = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        PolicyFileError::at(text, start, error.message())
    })?;
    for (user, roles) in &file.users {
        for role in roles.get_ref() {
            let is_built_in = BuiltInRole::ALL.into_iter().any(|known| known.name() == role);
            if !is_built_in && !file.roles.contains_key(role) {
                let words = format!(
                    "the user {user} has the role '{role}', which is not in the file; write [[roles.{role}.rules]]"
                );
                return Err(PolicyFileError::at(text, roles.span().start, words));
            }
        }
    }
    file.to_content(text)
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
        let roles = parse(TEXT.as_bytes()).unwrap();
        let text = PolicyFile::of(&roles).to_toml().unwrap();
        assert_eq!(parse(text.as_bytes()).unwrap(), roles, "{text}");
        assert_eq!(differences(&roles, &roles), []);
    }

    #[test]
    fn differences_name_roles_rules_and_users() {
        let before = parse(TEXT.as_bytes()).unwrap();
        let after = TEXT.replace("\"exclusive\"", "\"shared\"").replace(", \"reader\"", "");
        let after = after.replace("locks = 200", "locks = 100");
        let found = differences(&before, &parse(after.as_bytes()).unwrap());
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
        for (from, to, line, word) in [
            ("\"read\"", "\"rread\"", 2, "rread"),
            ("pattern =", "patern =", 4, "patern"),
            ("billing/*", "bill*ing", 2, "pattern"),
            ("cert:billing", "billing", 8, "principal"),
            ("\"reader\"]", "\"readers\"]", 8, "readers"),
            ("reports/*", "reports", 12, "a quota is for"),
            ("waits = 0", "", 12, "limits nothing"),
            ("waits = 0", "waits = -1", 13, "-1"),
            ("waits = 0", "burst = 5", 12, "a burst needs a rate"),
            ("verbs = [\"connect\"]", "verbs = [\"read\"]", 5, "without a pattern"),
            ("[users]", "[users", 7, "unclosed"),
        ] {
            let error = parse(TEXT.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.words.contains(word), "{to}: {error}");
            assert_eq!(error.line, line, "{to}: {error}");
        }
        assert_eq!(parse(b"[users]\n\xff").unwrap_err().line, 2);
    }
}
