//! Which store granted a lock, and what locks of some stores cannot do.

use std::fmt;

/// Who granted a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServedBy {
    /// The correctness tier: the replicated lock table.
    LockTable,
    /// The memory of the cluster's leader.
    Embedded,
    Redis,
    Redlock,
    /// The efficiency tier was down, and the policy is [`WhenDown::GoWithout`](crate::WhenDown::GoWithout): nothing is
    /// held.
    NoStore,
}

/// Something that a lock outside of the cluster cannot do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} needs a lock of the cluster, and this one is served by: {served_by}")]
pub struct NotInThisTier {
    pub what: &'static str,
    pub served_by: ServedBy,
}

impl fmt::Display for ServedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServedBy::LockTable => "lock table",
            ServedBy::Embedded => "embedded",
            ServedBy::Redis => "redis",
            ServedBy::Redlock => "redlock",
            ServedBy::NoStore => "no store",
        })
    }
}
