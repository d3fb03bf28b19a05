//! What the policy allows to an identity, compiled so that a check costs a few lookups.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Bound;

use crate::model::access::change::Roles;
use crate::model::access::identity::Identity;
use crate::model::access::pattern::Pattern;
use crate::model::access::policy::Access;
use crate::model::access::role::{RoleName, Rule};
use crate::model::access::verb::{Verb, Verbs};
use crate::model::rules_version::RulesVersion;
use crate::state::prefix_map::PrefixMap;

#[cfg(test)]
mod tests;

impl Access {
    /// What the identity may do under this policy.
    pub fn grants(&self, identity: &Identity) -> Grants {
        self.grants_under(RulesVersion::NEWEST, identity)
    }

    /// What a table of these rules allows to the identity.
    fn grants_under(&self, rules: RulesVersion, identity: &Identity) -> Grants {
        if self.is_banned(&identity.principal) {
            return Grants::default();
        }
        self.roles().grants(self.roles_of(rules, identity))
    }
}

impl Roles {
    /// What these roles allow together.
    pub fn grants<'a>(&self, roles: impl IntoIterator<Item = &'a RoleName>) -> Grants {
        let mut grants = Grants::default();
        for role in roles {
            self.rules_of(role).into_iter().for_each(|rule| grants.add(rule));
        }
        grants
    }
}

/// What one identity may do: the rules of all its roles together. A check costs a few lookups, however many rules there
/// are: the table makes it for each name of each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    cluster: Verbs,
    /// For all names.
    everywhere: Verbs,
    exact: BTreeMap<Arc<str>, Verbs>,
    prefixes: PrefixMap<Verbs>,
}

impl Grants {
    fn add(&mut self, rule: Rule) {
        match rule {
            Rule::Cluster { verbs } => self.cluster = self.cluster.and(verbs),
            Rule::Names { verbs, pattern: Pattern::Exact(name) } => {
                let granted = self.exact.entry(name).or_default();
                *granted = granted.and(verbs);
            }
            Rule::Names { verbs, pattern: Pattern::Prefix(prefix) } if prefix.is_empty() => {
                self.everywhere = self.everywhere.and(verbs);
            }
            Rule::Names { verbs, pattern: Pattern::Prefix(prefix) } => {
                let granted = self.prefixes.by_prefix().get(&prefix).copied().unwrap_or_default();
                self.prefixes.insert(prefix, granted.and(verbs));
            }
        }
    }

    /// A verb of the cluster.
    pub fn allow_cluster(&self, verb: Verb) -> bool {
        self.cluster.contains(verb)
    }

    /// All of the verbs, for this name.
    pub fn allow(&self, verbs: Verbs, name: &str) -> bool {
        self.on_name(name).contains_all(verbs)
    }

    /// All of the verbs, for every name that begins so. Each verb needs one pattern that covers the whole prefix.
    pub fn cover(&self, verbs: Verbs, prefix: &str) -> bool {
        self.on_prefix(prefix).contains_all(verbs)
    }

    /// The verb, for at least one name that begins so.
    pub fn reach(&self, verb: Verb, prefix: &str) -> bool {
        let allows_below = |patterns: &BTreeMap<Arc<str>, Verbs>| {
            let below = patterns.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
            let mut below = below.take_while(|(pattern, _)| pattern.starts_with(prefix));
            below.any(|(_, verbs)| verbs.contains(verb))
        };
        self.cover(Verbs::of(&[verb]), prefix)
            || allows_below(&self.exact)
            || allows_below(self.prefixes.by_prefix())
    }

    /// One of the verbs, for this name.
    pub fn allow_any(&self, verbs: Verbs, name: &str) -> bool {
        let granted = self.on_name(name);
        verbs.iter().any(|verb| granted.contains(verb))
    }

    fn on_name(&self, name: &str) -> Verbs {
        let exact = self.exact.get(name).copied().unwrap_or_default();
        self.on_prefix(name).and(exact)
    }

    /// Of all patterns that cover it.
    fn on_prefix(&self, text: &str) -> Verbs {
        self.prefixes.covering(text).fold(self.everywhere, |all, (_, some)| all.and(*some))
    }

    fn patterns(&self) -> usize {
        self.exact.len() + self.prefixes.by_prefix().len()
    }
}

/// What identities may do under the policy in force, so that it is computed once for each of them.
#[derive(Clone, Debug, Default)]
pub struct CompiledGrants {
    by_identity: BTreeMap<Identity, Arc<Grants>>,
    patterns: usize,
}

/// Identities that are remembered. There can be more of them than principals: credentials name roles.
const COMPILED_MAX: usize = 20_000;
/// In all of their grants.
const COMPILED_PATTERNS_MAX: usize = 500_000;

impl CompiledGrants {
    /// As a table of these rules has it.
    pub fn of(&mut self, access: &Access, rules: RulesVersion, identity: &Identity) -> Arc<Grants> {
        if let Some(grants) = self.by_identity.get(identity) {
            return grants.clone();
        }
        if self.by_identity.len() >= COMPILED_MAX || self.patterns >= COMPILED_PATTERNS_MAX {
            self.forget();
        }
        let grants = Arc::new(access.grants_under(rules, identity));
        self.patterns += grants.patterns();
        self.by_identity.insert(identity.clone(), grants.clone());
        grants
    }

    /// The policy has changed, or the rules.
    pub(crate) fn forget(&mut self) {
        *self = CompiledGrants::default();
    }
}
