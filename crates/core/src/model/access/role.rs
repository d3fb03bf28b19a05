//! A role: a name for a list of rules.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::pattern::Pattern;
use super::verb::{Scope, Verb, Verbs};
use crate::model::codec::{DecodeError, Reader, Sink};

pub const ROLE_NAME_BYTES_MAX: usize = 64;
pub const RULES_PER_ROLE_MAX: usize = 256;

/// Lower-case letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleName(Arc<str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleNameError;

impl RoleName {
    pub fn parse(text: &str) -> Result<RoleName, RoleNameError> {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        let valid = (1..=ROLE_NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_allowed);
        if valid { Ok(RoleName(text.into())) } else { Err(RoleNameError) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Verbs by name need a pattern, verbs of the cluster have none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    Names { verbs: Verbs, pattern: Pattern },
    Cluster { verbs: Verbs },
}

impl Rule {
    /// `None` if there is no verb, or one of the other scope.
    pub fn on_names(verbs: Verbs, pattern: Pattern) -> Option<Rule> {
        let fits = !verbs.is_empty() && verbs.within(Scope::Names) == verbs;
        fits.then_some(Rule::Names { verbs, pattern })
    }

    pub fn on_cluster(verbs: Verbs) -> Option<Rule> {
        let fits = !verbs.is_empty() && verbs.within(Scope::Cluster) == verbs;
        fits.then_some(Rule::Cluster { verbs })
    }
}

/// Roles that every cluster has. They cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltInRole {
    Reader,
    User,
    Operator,
    Admin,
}

const READER: Verbs = Verbs::of(&[Verb::Read]);
const USER: Verbs = READER.and(Verbs::of(&[
    Verb::Shared,
    Verb::Exclusive,
    Verb::Permit,
    Verb::Elect,
    Verb::Wound,
    Verb::Transfer,
    Verb::Efficiency,
]));
const OPERATOR: Verbs =
    USER.and(Verbs::of(&[Verb::Break, Verb::Move, Verb::Freeze, Verb::SetPermits]));
const OPERATOR_OF_CLUSTER: Verbs = Verbs::of(&[
    Verb::Connect,
    Verb::Sessions,
    Verb::KillSession,
    Verb::ClusterRead,
    Verb::Metrics,
]);

impl BuiltInRole {
    pub const ALL: [BuiltInRole; 4] =
        [BuiltInRole::Reader, BuiltInRole::User, BuiltInRole::Operator, BuiltInRole::Admin];

    pub fn named(name: &RoleName) -> Option<BuiltInRole> {
        BuiltInRole::ALL.into_iter().find(|role| role.name() == name.as_str())
    }

    pub const fn name(self) -> &'static str {
        match self {
            BuiltInRole::Reader => "reader",
            BuiltInRole::User => "user",
            BuiltInRole::Operator => "operator",
            BuiltInRole::Admin => "admin",
        }
    }

    /// All of them are for all names.
    pub fn rules(self) -> Vec<Rule> {
        let (names, cluster) = match self {
            BuiltInRole::Reader => (READER, Verbs::of(&[Verb::Connect, Verb::ClusterRead])),
            BuiltInRole::User => (USER, Verbs::of(&[Verb::Connect, Verb::ClusterRead])),
            BuiltInRole::Operator => (OPERATOR, OPERATOR_OF_CLUSTER),
            BuiltInRole::Admin => {
                let all = Verbs::of(Verb::ALL);
                (all.within(Scope::Names), all.within(Scope::Cluster))
            }
        };
        let everything = Pattern::Prefix("".into());
        [Rule::on_names(names, everything), Rule::on_cluster(cluster)]
            .into_iter()
            .flatten()
            .collect()
    }
}

pub(crate) fn write_role(sink: &mut impl Sink, role: &RoleName) {
    sink.bytes(role.as_str().as_bytes());
}

pub(crate) fn read_role(reader: &mut Reader<'_>) -> Result<RoleName, DecodeError> {
    RoleName::parse(reader.text()?)
        .map_err(|error| DecodeError::Inconsistent(alloc::format!("a role: {error}")))
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RoleNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the name of a role has 1 to {ROLE_NAME_BYTES_MAX} lower-case letters, digits, `-` or `_`"
        )
    }
}

impl core::error::Error for RoleNameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_roles_contain_each_other_and_each_has_both_kinds_of_rules() {
        let mut before = Verbs::NONE;
        for role in BuiltInRole::ALL {
            let rules = role.rules();
            assert_eq!(rules.len(), 2, "{role:?}");
            let mut verbs = Verbs::NONE;
            for rule in rules {
                match rule {
                    Rule::Names { verbs: some, .. } | Rule::Cluster { verbs: some } => {
                        verbs = verbs.and(some);
                    }
                }
            }
            assert!(verbs.contains_all(before), "{role:?}");
            before = verbs;
        }
        assert_eq!(before, Verbs::of(Verb::ALL));
    }

    #[test]
    fn a_rule_has_verbs_of_one_scope() {
        let pattern = Pattern::Exact("a".into());
        assert_eq!(Rule::on_names(Verbs::of(&[Verb::Read, Verb::Access]), pattern.clone()), None);
        assert_eq!(Rule::on_names(Verbs::NONE, pattern), None);
        assert_eq!(Rule::on_cluster(Verbs::of(&[Verb::Read])), None);
    }
}
