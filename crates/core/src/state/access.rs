//! The policy of a cluster: roles, who has them, and the tokens by which clients prove who they are.
//!
//! # Invariants
//!
//! * The generation rises with each change, and only then. Equal generations mean equal policies.
//! * Every role that a principal has exists.
//! * A banned principal has no roles and no tokens.
//! * What it holds is bounded: see the constants.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::model::access::change::{
    AccessChange, AccessRefusal, Roles, TokenId, TokenRecord, read_principal, write_principal,
};
use crate::model::access::identity::Identity;
use crate::model::access::pattern::Pattern;
use crate::model::access::principal::Principal;
use crate::model::access::role::{BuiltInRole, RULES_PER_ROLE_MAX, RoleName, Rule};
use crate::model::access::verb::{Verb, Verbs};
use crate::model::codec::{DecodeError, Reader, Sink};

#[cfg(test)]
mod tests;

pub const ROLES_MAX: usize = 1_000;
pub const PRINCIPALS_MAX: usize = 10_000;
pub const ROLES_PER_PRINCIPAL_MAX: usize = 32;
pub const TOKENS_MAX: usize = 10_000;
pub const NOTE_BYTES_MAX: usize = 256;
/// All of the policy, as a snapshot has it.
pub const POLICY_BYTES_MAX: usize = 2 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    generation: u64,
    roles: Roles,
    tokens: BTreeMap<TokenId, TokenRecord>,
    banned: BTreeSet<Principal>,
}

impl Access {
    /// Of the latest change; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    pub fn tokens(&self) -> impl Iterator<Item = &TokenRecord> {
        self.tokens.values()
    }

    pub fn token(&self, id: TokenId) -> Option<&TokenRecord> {
        self.tokens.get(&id)
    }

    pub fn banned(&self) -> impl Iterator<Item = &Principal> {
        self.banned.iter()
    }

    /// Changes the policy, if it is still that of the generation which the administrator has seen. All of the changes are
    /// made, or none.
    pub(crate) fn change(
        &mut self,
        expected: Option<u64>,
        changes: &[AccessChange],
    ) -> Result<(), AccessRefusal> {
        if expected.is_some_and(|expected| expected != self.generation) {
            return Err(AccessRefusal::OtherGeneration { now: self.generation });
        }
        let mut changed = self.clone();
        changes.iter().try_for_each(|change| changed.make(change.clone()))?;
        changed.generation += 1;
        let mut length = Length(0);
        changed.write(&mut length);
        if length.0 > POLICY_BYTES_MAX {
            return Err(AccessRefusal::TooLarge);
        }
        *self = changed;
        Ok(())
    }

    fn make(&mut self, change: AccessChange) -> Result<(), AccessRefusal> {
        match change {
            AccessChange::PutRole { role, rules } => self.put_role(role, rules),
            AccessChange::DeleteRole { role } => self.delete_role(&role),
            AccessChange::Grant { principal, role } => self.grant(principal, role),
            AccessChange::Revoke { principal, role } => {
                self.revoke(&principal, &role);
                Ok(())
            }
            AccessChange::Ban { principal } => self.ban(principal),
            AccessChange::PutToken(token) => self.put_token(token),
            AccessChange::RevokeToken { id } => {
                self.tokens.remove(&id).map(drop).ok_or(AccessRefusal::TokenNotFound)
            }
            AccessChange::Replace(roles) => self.replace(roles),
        }
    }

    fn put_role(&mut self, role: RoleName, rules: Vec<Rule>) -> Result<(), AccessRefusal> {
        check_role(&role, &rules)?;
        let roles = &mut self.roles.roles;
        if !roles.contains_key(&role) && roles.len() >= ROLES_MAX {
            return Err(AccessRefusal::TooManyRoles);
        }
        roles.insert(role, rules);
        Ok(())
    }

    fn delete_role(&mut self, role: &RoleName) -> Result<(), AccessRefusal> {
        if BuiltInRole::named(role).is_some() {
            return Err(AccessRefusal::BuiltIn);
        }
        self.roles.roles.remove(role).ok_or(AccessRefusal::RoleNotFound)?;
        self.roles.bindings.retain(|_, roles| {
            roles.remove(role);
            !roles.is_empty()
        });
        Ok(())
    }

    fn grant(&mut self, principal: Principal, role: RoleName) -> Result<(), AccessRefusal> {
        if !self.exists(&role) {
            return Err(AccessRefusal::RoleNotFound);
        }
        let bindings = &mut self.roles.bindings;
        if !bindings.contains_key(&principal) && bindings.len() >= PRINCIPALS_MAX {
            return Err(AccessRefusal::TooManyPrincipals);
        }
        let roles = bindings.get(&principal).map_or(0, BTreeSet::len);
        let has = bindings.get(&principal).is_some_and(|roles| roles.contains(&role));
        if !has && roles >= ROLES_PER_PRINCIPAL_MAX {
            return Err(AccessRefusal::TooManyRoles);
        }
        self.banned.remove(&principal);
        bindings.entry(principal).or_default().insert(role);
        Ok(())
    }

    fn revoke(&mut self, principal: &Principal, role: &RoleName) {
        if let Some(roles) = self.roles.bindings.get_mut(principal) {
            roles.remove(role);
            if roles.is_empty() {
                self.roles.bindings.remove(principal);
            }
        }
    }

    fn ban(&mut self, principal: Principal) -> Result<(), AccessRefusal> {
        if !self.banned.contains(&principal) && self.banned.len() >= PRINCIPALS_MAX {
            return Err(AccessRefusal::TooManyPrincipals);
        }
        self.roles.bindings.remove(&principal);
        self.tokens.retain(|_, token| token.principal != principal);
        self.banned.insert(principal);
        Ok(())
    }

    fn put_token(&mut self, token: TokenRecord) -> Result<(), AccessRefusal> {
        if self.tokens.contains_key(&token.id) {
            return Err(AccessRefusal::TokenExists);
        }
        if !token.principal.is_token() {
            return Err(AccessRefusal::NotATokenPrincipal);
        }
        if self.banned.contains(&token.principal) {
            return Err(AccessRefusal::Banned);
        }
        if token.note.len() > NOTE_BYTES_MAX {
            return Err(AccessRefusal::NoteTooLong);
        }
        if self.tokens.len() >= TOKENS_MAX {
            return Err(AccessRefusal::TooManyTokens);
        }
        self.tokens.insert(token.id, token);
        Ok(())
    }

    fn replace(&mut self, roles: Roles) -> Result<(), AccessRefusal> {
        check_roles(&roles)?;
        for principal in roles.bindings.keys() {
            self.banned.remove(principal);
        }
        self.roles = roles;
        Ok(())
    }

    fn exists(&self, role: &RoleName) -> bool {
        BuiltInRole::named(role).is_some() || self.roles.roles.contains_key(role)
    }

    /// What the identity may do under this policy.
    pub fn grants(&self, identity: &Identity) -> Grants {
        if self.banned.contains(&identity.principal) {
            return Grants::default();
        }
        let bound = self.roles.bindings.get(&identity.principal);
        let mut grants = Grants::default();
        for role in bound.into_iter().flatten().chain(&identity.claimed) {
            match BuiltInRole::named(role) {
                Some(role) => role.rules().into_iter().for_each(|rule| grants.add(rule)),
                None => {
                    let rules = self.roles.roles.get(role).into_iter().flatten();
                    rules.for_each(|rule| grants.add(rule.clone()));
                }
            }
        }
        grants
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.varint(self.generation);
        self.roles.write(sink);
        sink.count(self.tokens.len());
        self.tokens.values().for_each(|token| token.write(sink));
        sink.count(self.banned.len());
        self.banned.iter().for_each(|principal| write_principal(sink, principal));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Access, DecodeError> {
        let inconsistent = |what: &str| DecodeError::Inconsistent(what.into());
        let generation = reader.varint()?;
        let roles = Roles::read(reader)?;
        check_roles(&roles).map_err(|_| inconsistent("the roles are not possible"))?;
        let mut access = Access { generation, roles, ..Access::default() };
        for _ in 0..reader.count()? {
            let token = TokenRecord::read(reader)?;
            if access.tokens.last_key_value().is_some_and(|(last, _)| *last >= token.id) {
                return Err(inconsistent("tokens are not in order"));
            }
            access.put_token(token).map_err(|_| inconsistent("a token is not possible"))?;
        }
        for _ in 0..reader.count()? {
            let principal = read_principal(reader)?;
            if access.banned.last().is_some_and(|last| *last >= principal) {
                return Err(inconsistent("banned principals are not in order"));
            }
            let has_token = access.tokens.values().any(|token| token.principal == principal);
            if has_token || access.roles.bindings.contains_key(&principal) {
                return Err(inconsistent("a banned principal has roles or tokens"));
            }
            access.ban(principal).map_err(|_| inconsistent("too many banned principals"))?;
        }
        Ok(access)
    }
}

/// Counts what would be written.
struct Length(usize);

impl Sink for Length {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

fn check_role(role: &RoleName, rules: &[Rule]) -> Result<(), AccessRefusal> {
    if BuiltInRole::named(role).is_some() {
        return Err(AccessRefusal::BuiltIn);
    }
    if rules.len() > RULES_PER_ROLE_MAX { Err(AccessRefusal::TooManyRules) } else { Ok(()) }
}

fn check_roles(roles: &Roles) -> Result<(), AccessRefusal> {
    roles.roles.iter().try_for_each(|(role, rules)| check_role(role, rules))?;
    if roles.roles.len() > ROLES_MAX {
        return Err(AccessRefusal::TooManyRoles);
    }
    if roles.bindings.len() > PRINCIPALS_MAX {
        return Err(AccessRefusal::TooManyPrincipals);
    }
    for bound in roles.bindings.values() {
        if bound.is_empty() || bound.len() > ROLES_PER_PRINCIPAL_MAX {
            return Err(AccessRefusal::TooManyRoles);
        }
        let exists = |role| BuiltInRole::named(role).is_some() || roles.roles.contains_key(role);
        if !bound.iter().all(exists) {
            return Err(AccessRefusal::RoleNotFound);
        }
    }
    Ok(())
}

/// What one identity may do: the rules of all its roles together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    cluster: Verbs,
    /// For all names.
    everywhere: Verbs,
    names: BTreeMap<Pattern, Verbs>,
}

impl Grants {
    fn add(&mut self, rule: Rule) {
        match rule {
            Rule::Cluster { verbs } => self.cluster = self.cluster.and(verbs),
            Rule::Names { verbs, pattern } if pattern.covers_prefix("") => {
                self.everywhere = self.everywhere.and(verbs);
            }
            Rule::Names { verbs, pattern } => {
                let granted = self.names.entry(pattern).or_default();
                *granted = granted.and(verbs);
            }
        }
    }

    /// A verb of the cluster.
    pub fn allow_cluster(&self, verb: Verb) -> bool {
        self.cluster.contains(verb)
    }

    /// All of the verbs, for this name.
    pub fn allow(&self, verbs: Verbs, name: &str) -> bool {
        self.allow_where(verbs, |pattern| pattern.matches(name))
    }

    /// All of the verbs, for every name that begins so. Each verb needs one pattern that covers the whole prefix.
    pub fn cover(&self, verbs: Verbs, prefix: &str) -> bool {
        self.allow_where(verbs, |pattern| pattern.covers_prefix(prefix))
    }

    /// One of the verbs, for this name.
    pub fn allow_any(&self, verbs: Verbs, name: &str) -> bool {
        verbs.iter().any(|verb| self.allow(Verbs::of(&[verb]), name))
    }

    fn allow_where(&self, verbs: Verbs, fits: impl Fn(&Pattern) -> bool) -> bool {
        let mut missing = verbs.without(self.everywhere);
        let mut rules = self.names.iter();
        while !missing.is_empty() {
            let Some((pattern, granted)) = rules.next() else { return false };
            if fits(pattern) {
                missing = missing.without(*granted);
            }
        }
        true
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
    pub fn of(&mut self, access: &Access, identity: &Identity) -> Arc<Grants> {
        if let Some(grants) = self.by_identity.get(identity) {
            return grants.clone();
        }
        if self.by_identity.len() >= COMPILED_MAX || self.patterns >= COMPILED_PATTERNS_MAX {
            self.forget();
        }
        let grants = Arc::new(access.grants(identity));
        self.patterns += grants.names.len();
        self.by_identity.insert(identity.clone(), grants.clone());
        grants
    }

    /// The policy has changed.
    pub(crate) fn forget(&mut self) {
        *self = CompiledGrants::default();
    }
}
