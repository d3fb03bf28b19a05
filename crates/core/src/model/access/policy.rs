//! The policy of a cluster: roles, who has them, and the tokens by which clients prove who they are.
//!
//! # Invariants
//!
//! * The generation rises with each change, and only then. Equal generations mean equal policies.
//! * Every role that a principal has exists.
//! * A banned principal has no roles and no tokens.
//! * What it holds is bounded: see the constants.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::model::access::change::{AccessChange, AccessRefusal, Roles, TokenId, TokenRecord};
use crate::model::access::identity::Identity;
use crate::model::access::principal::{Principal, read_principal, write_principal};
use crate::model::access::quota::{QUOTAS_MAX, Quota, QuotaSubject, read_quotas, write_quotas};
use crate::model::access::role::{BuiltInRole, RULES_PER_ROLE_MAX, RoleName, Rule};
use crate::model::access::session_endings::SessionEndings;
use crate::model::access::verb::Verb;
use crate::model::codec::{DecodeError, Length, Reader, Sink};
use crate::model::rules_version::RulesVersion;

/// Who shows the token by which a new cluster gets its first administrator.
pub const BOOTSTRAP_PRINCIPAL: &str = "token:bootstrap";

pub const ROLES_MAX: usize = 1_000;
pub const PRINCIPALS_MAX: usize = 10_000;
pub const ROLES_PER_PRINCIPAL_MAX: usize = 32;
pub const TOKENS_MAX: usize = 10_000;
pub const NOTE_BYTES_MAX: usize = 256;
/// All that administrators have set. A snapshot also has the ended sessions.
pub const POLICY_BYTES_MAX: usize = 2 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    generation: u64,
    roles: Roles,
    tokens: BTreeMap<TokenId, TokenRecord>,
    banned: BTreeSet<Principal>,
    /// Empty before rules 6. Each limits something.
    quotas: BTreeMap<QuotaSubject, Quota>,
    /// Nothing before rules 9.
    endings: SessionEndings,
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

    pub fn quotas(&self) -> &BTreeMap<QuotaSubject, Quota> {
        &self.quotas
    }

    pub(crate) fn is_banned(&self, principal: &Principal) -> bool {
        self.banned.contains(principal)
    }

    /// Changes the policy, if it is still that of the generation which the administrator has seen. All of the changes are
    /// made, or none.
    pub(crate) fn change(
        &mut self,
        expected: Option<u64>,
        changes: &[AccessChange],
        by: Option<&Identity>,
        rules: RulesVersion,
    ) -> Result<(), AccessRefusal> {
        if expected.is_some_and(|expected| expected != self.generation) {
            return Err(AccessRefusal::OtherGeneration { now: self.generation });
        }
        let mut changed = self.clone();
        changes.iter().try_for_each(|change| changed.make(change.clone()))?;
        // The bootstrap token ends with its first change.
        let is_bootstrap = by.is_some_and(|by| by.principal.as_str() == BOOTSTRAP_PRINCIPAL);
        let needs_administrator = self.has_administrator() || is_bootstrap;
        if rules >= RulesVersion::FIVE && needs_administrator && !changed.has_administrator() {
            return Err(AccessRefusal::LastAdministrator);
        }
        changed.endings.begin_generation_after(changed.generation);
        changed.generation += 1;
        let mut length = Length(0);
        changed.write_without_endings(&mut length, rules);
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
            AccessChange::SetQuotas(quotas) => {
                quotas.into_iter().try_for_each(|(subject, quota)| self.set_quota(subject, quota))
            }
        }
    }

    fn set_quota(&mut self, subject: QuotaSubject, quota: Quota) -> Result<(), AccessRefusal> {
        if quota.is_empty() {
            self.quotas.remove(&subject);
            return Ok(());
        }
        quota.check(&subject).map_err(AccessRefusal::InvalidQuota)?;
        if !self.quotas.contains_key(&subject) && self.quotas.len() >= QUOTAS_MAX {
            return Err(AccessRefusal::TooManyQuotas);
        }
        self.quotas.insert(subject, quota);
        Ok(())
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

    /// Whether a table of these rules allows this verb of the cluster to the identity.
    pub(crate) fn allows_on_cluster(
        &self,
        rules: RulesVersion,
        identity: &Identity,
        verb: Verb,
    ) -> bool {
        !self.banned.contains(&identity.principal)
            && self.roles_of(rules, identity).any(|role| self.roles.allow_on_cluster(role, verb))
    }

    /// Whether a principal is bound to a role that may change the policy, and can prove who it is.
    fn has_administrator(&self) -> bool {
        let is_administrator = |principal: &Principal| {
            let bound = self.roles.bindings.get(principal).into_iter().flatten();
            bound.into_iter().any(|role| self.roles.allow_on_cluster(role, Verb::Access))
        };
        let mut others = self.roles.bindings.keys().filter(|principal| !principal.is_token());
        others.any(is_administrator)
            || self.tokens.values().any(|token| is_administrator(&token.principal))
    }

    /// Those that it is bound to, and those that its credential names. The bootstrap token names one until the first
    /// change of the policy, wherever it was accepted.
    pub(crate) fn roles_of<'a>(
        &'a self,
        rules: RulesVersion,
        identity: &'a Identity,
    ) -> impl Iterator<Item = &'a RoleName> {
        let bound = self.roles.bindings.get(&identity.principal);
        let is_over = rules >= RulesVersion::FIVE
            && self.generation > 0
            && identity.principal.as_str() == BOOTSTRAP_PRINCIPAL;
        let claimed = (!is_over).then_some(&identity.claimed);
        bound.into_iter().flatten().chain(claimed.into_iter().flatten())
    }

    /// The change that made this generation ended all sessions of these principals, and, if `of_strangers`, all sessions
    /// that may not connect any more.
    pub(crate) fn note_ended_sessions(
        &mut self,
        principals: impl IntoIterator<Item = Principal>,
        of_strangers: bool,
    ) {
        self.endings.note(self.generation, principals, of_strangers);
    }

    /// Which sessions the changes up to now have ended was not noted.
    pub(crate) fn forget_ended_sessions(&mut self) {
        self.endings.forget_through(self.generation);
    }

    /// Whether one of the changes after that generation has ended the sessions of this identity. If that cannot be
    /// known any more, it counts as ended.
    pub(crate) fn has_ended_since(
        &self,
        generation: u64,
        rules: RulesVersion,
        identity: &Identity,
    ) -> bool {
        let may_connect = || self.allows_on_cluster(rules, identity, Verb::Connect);
        self.endings.contain_since(generation, &identity.principal, may_connect)
    }

    /// As the snapshot of a table of these rules has it.
    pub(crate) fn write(&self, sink: &mut impl Sink, rules: RulesVersion) {
        self.write_without_endings(sink, rules);
        if rules >= RulesVersion::NINE {
            self.endings.write(sink);
        }
    }

    fn write_without_endings(&self, sink: &mut impl Sink, rules: RulesVersion) {
        sink.varint(self.generation);
        self.roles.write(sink);
        sink.count(self.tokens.len());
        self.tokens.values().for_each(|token| token.write(sink));
        sink.count(self.banned.len());
        self.banned.iter().for_each(|principal| write_principal(sink, principal));
        if rules >= RulesVersion::SIX {
            write_quotas(sink, &self.quotas);
        }
    }

    pub(crate) fn read(
        reader: &mut Reader<'_>,
        rules: RulesVersion,
    ) -> Result<Access, DecodeError> {
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
        let with_tokens: BTreeSet<Principal> =
            access.tokens.values().map(|token| token.principal.clone()).collect();
        for _ in 0..reader.count()? {
            let principal = read_principal(reader)?;
            if access.banned.len() >= PRINCIPALS_MAX {
                return Err(inconsistent("too many banned principals"));
            }
            if access.banned.last().is_some_and(|last| *last >= principal) {
                return Err(inconsistent("banned principals are not in order"));
            }
            if with_tokens.contains(&principal) || access.roles.bindings.contains_key(&principal) {
                return Err(inconsistent("a banned principal has roles or tokens"));
            }
            access.banned.insert(principal);
        }
        if rules >= RulesVersion::SIX {
            for (subject, quota) in read_quotas(reader)? {
                let is_set = !quota.is_empty() && access.set_quota(subject, quota).is_ok();
                is_set.then_some(()).ok_or_else(|| inconsistent("a quota is not possible"))?;
            }
        }
        if rules >= RulesVersion::NINE {
            access.endings = SessionEndings::read(reader, generation)?;
        }
        Ok(access)
    }
}

impl Roles {
    /// Of a role that the policy defines, or that every cluster has.
    pub fn rules_of(&self, role: &RoleName) -> Vec<Rule> {
        match BuiltInRole::named(role) {
            Some(role) => role.rules(),
            None => self.roles.get(role).cloned().unwrap_or_default(),
        }
    }

    fn allow_on_cluster(&self, role: &RoleName, verb: Verb) -> bool {
        let allows = |rule: &Rule| matches!(rule, Rule::Cluster { verbs } if verbs.contains(verb));
        match BuiltInRole::named(role) {
            Some(role) => role.rules().iter().any(allows),
            None => self.roles.get(role).into_iter().flatten().any(allows),
        }
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
