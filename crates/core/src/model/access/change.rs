//! Changes of the policy by an administrator.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::identity::Identity;
use super::principal::{Principal, read_principal, write_principal};
use super::quota::{Quota, QuotaError, QuotaSubject, read_quotas, write_quotas};
use super::role::{RoleName, Rule, read_role, write_role};
use crate::model::codec::{DecodeError, Length, Reader, Sink};

use super::pattern::Pattern;
use super::verb::Verbs;

/// One change of the policy. It applies to all commands after it in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// Creates the role, or replaces its rules.
    PutRole {
        role: RoleName,
        rules: Vec<Rule>,
    },
    /// Deletes the role, and revokes it from all principals.
    DeleteRole {
        role: RoleName,
    },
    Grant {
        principal: Principal,
        role: RoleName,
    },
    Revoke {
        principal: Principal,
        role: RoleName,
    },
    /// Takes all roles from the principal, also those that its credential names, until an administrator grants it a
    /// role again. Revokes its tokens.
    Ban {
        principal: Principal,
    },
    PutToken(TokenRecord),
    RevokeToken {
        id: TokenId,
    },
    /// Replaces all roles and bindings at once. Tokens and bans stay.
    Replace(Roles),
    /// Sets these quotas, and leaves the others. A quota that limits nothing is deleted.
    SetQuotas(BTreeMap<QuotaSubject, Quota>),
}

/// The content of a policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    pub roles: BTreeMap<RoleName, Vec<Rule>>,
    pub bindings: BTreeMap<Principal, BTreeSet<RoleName>>,
}

/// The public part of an access token. It is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

/// What the cluster stores of an access token; never its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: TokenId,
    /// The SHA-256 of the secret.
    pub digest: [u8; 32],
    /// `token:NAME`. Several tokens of one name are one principal.
    pub principal: Principal,
    /// By the wall clock of the node that receives the token.
    pub expires_at_unix_ms: Option<u64>,
    /// A remark of the administrator, for display.
    pub note: String,
}

/// Several changes that an administrator makes at once: the table makes all of them, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeAccess {
    /// The principal that makes the changes, for the audit file and for display.
    pub by: Box<str>,
    /// When the table applies the changes, it checks that this identity may make them. Without an identity it checks
    /// nothing.
    pub identity: Option<Box<Identity>>,
    /// The generation of the policy that the administrator has seen. The table refuses the changes if the policy has
    /// another one. Without it, any generation will do.
    pub expected: Option<u64>,
    pub changes: Box<[AccessChange]>,
    /// Also ends the sessions of each principal that a change bans, or from which it revokes a role or a token. A
    /// change of roles ends the sessions of all principals that may no longer connect.
    pub end_sessions: bool,
}

/// How many changes can be made at once.
pub const ACCESS_CHANGES_MAX: usize = 64;

/// Why the policy was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRefusal {
    /// Another change came first: the policy has a newer generation than the expected one.
    OtherGeneration {
        now: u64,
    },
    RoleNotFound,
    TokenNotFound,
    /// The role cannot be changed.
    BuiltIn,
    /// Another token has this id.
    TokenExists,
    /// A token is for `token:NAME`.
    NotATokenPrincipal,
    /// A role has to be granted to the principal first.
    Banned,
    TooManyRoles,
    TooManyRules,
    TooManyPrincipals,
    TooManyTokens,
    /// No change at all, or more than can be made at once.
    ChangeCount,
    NoteTooLong,
    /// The policy would take more bytes than it may.
    TooLarge,
    /// No principal could change the policy any more.
    LastAdministrator,
    InvalidQuota(QuotaError),
    TooManyQuotas,
}

impl fmt::Display for AccessRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessRefusal::OtherGeneration { now } => {
                return write!(
                    f,
                    "another change of the policy came first, and it has generation {now} now; look at it, then try \
                     again"
                );
            }
            AccessRefusal::InvalidQuota(error) => return error.fmt(f),
            AccessRefusal::TooManyQuotas => "there are as many quotas as there can be; delete some",
            AccessRefusal::RoleNotFound => "there is no such role; create it first",
            AccessRefusal::TokenNotFound => "there is no such token",
            AccessRefusal::BuiltIn => "a built-in role cannot be changed; create one of another name",
            AccessRefusal::TokenExists => "another token has this id; create it again",
            AccessRefusal::NotATokenPrincipal => "a token is for a principal `token:NAME`",
            AccessRefusal::Banned => "the principal is banned; grant it a role first",
            AccessRefusal::TooManyRoles => "there are as many roles as there can be",
            AccessRefusal::TooManyRules => "a role has as many rules as it can have",
            AccessRefusal::TooManyPrincipals => "there are as many principals as there can be",
            AccessRefusal::TooManyTokens => "there are as many tokens as there can be; revoke some",
            AccessRefusal::ChangeCount => "one request makes 1 to 64 changes",
            AccessRefusal::NoteTooLong => "the note of a token has at most 256 bytes",
            AccessRefusal::TooLarge => "the policy would take more than 2 MiB; use patterns and roles for several principals",
            AccessRefusal::LastAdministrator => {
                "no administrator would be left: make another user an administrator first (holdfast access user create \
                 token:NAME --role admin)"
            }
        })
    }
}

const PUT_ROLE: u8 = 1;
const DELETE_ROLE: u8 = 2;
const GRANT: u8 = 3;
const REVOKE: u8 = 4;
const BAN: u8 = 5;
const PUT_TOKEN: u8 = 6;
const REVOKE_TOKEN: u8 = 7;
const REPLACE: u8 = 8;
/// Since version 7 of log entries.
const SET_QUOTAS: u8 = 9;

const EXACT: u8 = 1;
const PREFIX: u8 = 2;
const CLUSTER: u8 = 3;

impl ChangeAccess {
    /// Writes everything except the identity.
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.bytes(self.by.as_bytes());
        sink.optional(self.expected);
        sink.u8(u8::from(self.end_sessions));
        sink.count(self.changes.len());
        self.changes.iter().for_each(|change| change.write(sink));
    }

    /// Rules before version 6 have no quotas.
    pub(crate) fn sets_quotas(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, AccessChange::SetQuotas(_)))
    }

    /// Its approximate size in the log and in memory.
    pub fn size_bytes(&self) -> usize {
        let mut length = Length(0);
        self.write(&mut length);
        length.0
    }

    /// Reads it from a log entry of this version, without the identity.
    pub(crate) fn read(reader: &mut Reader<'_>, version: u8) -> Result<ChangeAccess, DecodeError> {
        let by = Box::from(reader.text()?);
        let expected = reader.optional()?;
        let end_sessions = reader.bool("end of sessions")?;
        let mut changes = Vec::new();
        for _ in 0..reader.count()? {
            changes.push(AccessChange::read(reader, version)?);
        }
        let changes = changes.into_boxed_slice();
        Ok(ChangeAccess { by, identity: None, expected, changes, end_sessions })
    }
}

impl AccessChange {
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        match self {
            AccessChange::PutRole { role, rules } => {
                sink.u8(PUT_ROLE);
                write_role(sink, role);
                write_rules(sink, rules);
            }
            AccessChange::DeleteRole { role } => {
                sink.u8(DELETE_ROLE);
                write_role(sink, role);
            }
            AccessChange::Grant { principal, role } => {
                sink.u8(GRANT);
                write_principal(sink, principal);
                write_role(sink, role);
            }
            AccessChange::Revoke { principal, role } => {
                sink.u8(REVOKE);
                write_principal(sink, principal);
                write_role(sink, role);
            }
            AccessChange::Ban { principal } => {
                sink.u8(BAN);
                write_principal(sink, principal);
            }
            AccessChange::PutToken(token) => {
                sink.u8(PUT_TOKEN);
                token.write(sink);
            }
            AccessChange::RevokeToken { id } => {
                sink.u8(REVOKE_TOKEN);
                sink.varint(id.0);
            }
            AccessChange::Replace(roles) => {
                sink.u8(REPLACE);
                roles.write(sink);
            }
            AccessChange::SetQuotas(quotas) => {
                sink.u8(SET_QUOTAS);
                write_quotas(sink, quotas);
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, version: u8) -> Result<AccessChange, DecodeError> {
        Ok(match reader.u8()? {
            PUT_ROLE => {
                AccessChange::PutRole { role: read_role(reader)?, rules: read_rules(reader)? }
            }
            DELETE_ROLE => AccessChange::DeleteRole { role: read_role(reader)? },
            GRANT => {
                AccessChange::Grant { principal: read_principal(reader)?, role: read_role(reader)? }
            }
            REVOKE => AccessChange::Revoke {
                principal: read_principal(reader)?,
                role: read_role(reader)?,
            },
            BAN => AccessChange::Ban { principal: read_principal(reader)? },
            PUT_TOKEN => AccessChange::PutToken(TokenRecord::read(reader)?),
            REVOKE_TOKEN => AccessChange::RevokeToken { id: TokenId(reader.varint()?) },
            REPLACE => AccessChange::Replace(Roles::read(reader)?),
            SET_QUOTAS if version >= 7 => AccessChange::SetQuotas(read_quotas(reader)?),
            tag => return Err(DecodeError::UnknownTag { what: "change of access", tag }),
        })
    }
}

impl Roles {
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.count(self.roles.len());
        for (role, rules) in &self.roles {
            write_role(sink, role);
            write_rules(sink, rules);
        }
        sink.count(self.bindings.len());
        for (principal, roles) in &self.bindings {
            write_principal(sink, principal);
            sink.count(roles.len());
            roles.iter().for_each(|role| write_role(sink, role));
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Roles, DecodeError> {
        let mut read = Roles::default();
        for _ in 0..reader.count()? {
            let role = read_role(reader)?;
            if read.roles.last_key_value().is_some_and(|(last, _)| *last >= role) {
                return Err(DecodeError::Inconsistent("roles are not in order".into()));
            }
            read.roles.insert(role, read_rules(reader)?);
        }
        for _ in 0..reader.count()? {
            let principal = read_principal(reader)?;
            if read.bindings.last_key_value().is_some_and(|(last, _)| *last >= principal) {
                return Err(DecodeError::Inconsistent("principals are not in order".into()));
            }
            let mut roles = BTreeSet::new();
            for _ in 0..reader.count()? {
                let role = read_role(reader)?;
                if roles.last().is_some_and(|last| *last >= role) {
                    return Err(DecodeError::Inconsistent("roles are not in order".into()));
                }
                roles.insert(role);
            }
            read.bindings.insert(principal, roles);
        }
        Ok(read)
    }
}

impl TokenRecord {
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.varint(self.id.0);
        sink.put(&self.digest);
        write_principal(sink, &self.principal);
        sink.optional(self.expires_at_unix_ms);
        sink.bytes(self.note.as_bytes());
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<TokenRecord, DecodeError> {
        Ok(TokenRecord {
            id: TokenId(reader.varint()?),
            digest: reader.array()?,
            principal: read_principal(reader)?,
            expires_at_unix_ms: reader.optional()?,
            note: reader.text()?.into(),
        })
    }
}

fn write_rules(sink: &mut impl Sink, rules: &[Rule]) {
    sink.count(rules.len());
    for rule in rules {
        match rule {
            Rule::Names { verbs, pattern: Pattern::Exact(name) } => {
                sink.u8(EXACT);
                sink.varint(verbs.bits().into());
                sink.bytes(name.as_bytes());
            }
            Rule::Names { verbs, pattern: Pattern::Prefix(prefix) } => {
                sink.u8(PREFIX);
                sink.varint(verbs.bits().into());
                sink.bytes(prefix.as_bytes());
            }
            Rule::Cluster { verbs } => {
                sink.u8(CLUSTER);
                sink.varint(verbs.bits().into());
            }
        }
    }
}

fn read_rules(reader: &mut Reader<'_>) -> Result<Vec<Rule>, DecodeError> {
    let count = reader.count()?;
    let mut rules = Vec::new();
    for _ in 0..count {
        let kind = reader.u8()?;
        let unknown = || DecodeError::Inconsistent("a rule has verbs that it cannot have".into());
        let verbs = Verbs::from_bits(reader.varint()?).ok_or_else(unknown)?;
        let rule = match kind {
            EXACT => Rule::on_names(verbs, Pattern::Exact(reader.text()?.into())),
            PREFIX => Rule::on_names(verbs, Pattern::Prefix(reader.text()?.into())),
            CLUSTER => Rule::on_cluster(verbs),
            tag => return Err(DecodeError::UnknownTag { what: "rule of a role", tag }),
        };
        rules.push(rule.ok_or_else(unknown)?);
    }
    Ok(rules)
}
