//! How much a principal, or all holders of the names with a prefix, may take.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use super::pattern::Pattern;
use super::principal::{Principal, read_principal, write_principal};
use crate::model::codec::{DecodeError, Reader, Sink};

/// Quotas of one policy.
pub const QUOTAS_MAX: usize = 1_000;
/// The highest number that a quota can have.
pub const QUOTA_MAX: u64 = 1_000_000_000;

/// Whose use is counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaSubject {
    /// All sessions and requests of a principal.
    Principal(Principal),
    /// What is about names that begin so, of all principals.
    Prefix(Arc<str>),
}

impl QuotaSubject {
    /// A principal such as `token:NAME`, or a prefix and `*`.
    pub fn parse(text: &str) -> Result<QuotaSubject, QuotaError> {
        if let Ok(principal) = Principal::parse(text) {
            // It looks like a pattern of principals, and there are none.
            let is_pattern = text.ends_with('*');
            return if is_pattern {
                Err(QuotaError::Subject)
            } else {
                Ok(QuotaSubject::Principal(principal))
            };
        }
        match Pattern::parse(text) {
            Ok(Pattern::Prefix(prefix)) => Ok(QuotaSubject::Prefix(prefix)),
            Ok(Pattern::Exact(_)) | Err(_) => Err(QuotaError::Subject),
        }
    }

    fn is_prefix(&self) -> bool {
        matches!(self, QuotaSubject::Prefix(_))
    }
}

impl fmt::Display for QuotaSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuotaSubject::Principal(principal) => principal.fmt(f),
            QuotaSubject::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// What is counted, and how much of it there may be. What is not set has no quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Of a principal only.
    pub sessions: Option<u64>,
    /// Names that are held or waited for, each time that one is.
    pub locks: Option<u64>,
    /// Names that are waited for.
    pub waits: Option<u64>,
    /// Requests in a second, on average.
    pub rate: Option<u64>,
    /// Requests at once. Without it, as many as in a second.
    pub burst: Option<u64>,
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.sessions, "sessions"),
            (self.locks, "locks"),
            (self.waits, "waits"),
            (self.rate, "requests a second"),
            (self.burst, "requests at once"),
        ];
        let limited = parts.into_iter().filter_map(|(limit, what)| Some((limit?, what)));
        for (number, (limit, what)) in limited.enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{limit} {what}")?;
        }
        Ok(())
    }
}

/// Why a quota is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaError {
    Subject,
    Number,
    SessionsOfPrefix,
    BurstWithoutRate,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuotaError::Subject => "a quota is for a principal, such as token:billing, or for a prefix, such as billing/*",
            QuotaError::Number => "the numbers of a quota are at most 1,000,000,000; a rate and its burst are at least 1",
            QuotaError::SessionsOfPrefix => "a session is of a principal: a quota of a prefix has no sessions",
            QuotaError::BurstWithoutRate => "a burst needs a rate",
        })
    }
}

impl Quota {
    pub fn check(&self, subject: &QuotaSubject) -> Result<(), QuotaError> {
        let all = [self.sessions, self.locks, self.waits, self.rate, self.burst];
        let of_rate = [self.rate, self.burst];
        if self.burst.is_some() && self.rate.is_none() {
            return Err(QuotaError::BurstWithoutRate);
        }
        if all.into_iter().flatten().any(|number| number > QUOTA_MAX)
            || of_rate.into_iter().flatten().any(|number| number == 0)
        {
            return Err(QuotaError::Number);
        }
        if self.sessions.is_some() && subject.is_prefix() {
            return Err(QuotaError::SessionsOfPrefix);
        }
        Ok(())
    }

    /// Whether it limits nothing. There is no such quota in a policy.
    pub fn is_empty(&self) -> bool {
        *self == Quota::default()
    }

    /// Whether the lock table has to count for it.
    pub(crate) fn is_counted(&self) -> bool {
        self.sessions.or(self.locks).or(self.waits).is_some()
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        let all = [self.sessions, self.locks, self.waits, self.rate, self.burst];
        all.into_iter().for_each(|number| sink.optional(number));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Quota, DecodeError> {
        Ok(Quota {
            sessions: reader.optional()?,
            locks: reader.optional()?,
            waits: reader.optional()?,
            rate: reader.optional()?,
            burst: reader.optional()?,
        })
    }
}

const OF_PRINCIPAL: u8 = 1;
const OF_PREFIX: u8 = 2;

impl QuotaSubject {
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        match self {
            QuotaSubject::Principal(principal) => {
                sink.u8(OF_PRINCIPAL);
                write_principal(sink, principal);
            }
            QuotaSubject::Prefix(prefix) => {
                sink.u8(OF_PREFIX);
                sink.bytes(prefix.as_bytes());
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<QuotaSubject, DecodeError> {
        match reader.u8()? {
            OF_PRINCIPAL => Ok(QuotaSubject::Principal(read_principal(reader)?)),
            OF_PREFIX => {
                let text = alloc::format!("{}*", reader.text()?);
                match Pattern::parse(&text) {
                    Ok(Pattern::Prefix(prefix)) => Ok(QuotaSubject::Prefix(prefix)),
                    _ => Err(DecodeError::Inconsistent(String::from(
                        "a quota of an impossible prefix",
                    ))),
                }
            }
            tag => Err(DecodeError::UnknownTag { what: "subject of a quota", tag }),
        }
    }
}

pub(crate) fn write_quotas(sink: &mut impl Sink, quotas: &BTreeMap<QuotaSubject, Quota>) {
    sink.count(quotas.len());
    for (subject, quota) in quotas {
        subject.write(sink);
        quota.write(sink);
    }
}

pub(crate) fn read_quotas(
    reader: &mut Reader<'_>,
) -> Result<BTreeMap<QuotaSubject, Quota>, DecodeError> {
    let mut quotas: BTreeMap<QuotaSubject, Quota> = BTreeMap::new();
    for _ in 0..reader.count()? {
        let (subject, quota) = (QuotaSubject::read(reader)?, Quota::read(reader)?);
        if quotas.last_key_value().is_some_and(|(last, _)| *last >= subject) {
            return Err(DecodeError::Inconsistent("quotas are not in order".into()));
        }
        quotas.insert(subject, quota);
    }
    Ok(quotas)
}

/// What a quota counts, for the words of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    Sessions,
    Locks,
    Waits,
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuotaKind::Sessions => "sessions",
            QuotaKind::Locks => "locks that are held or waited for",
            QuotaKind::Waits => "locks that are waited for",
        })
    }
}
