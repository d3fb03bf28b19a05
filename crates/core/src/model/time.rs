//! Time as the lock table knows it: a number that leaders stamp on log entries.

use core::fmt;

/// A moment in logical time, in milliseconds. It only moves forward, and it stands still while there
/// is no leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalTime {
    ms: u64,
}

impl LogicalTime {
    pub const ZERO: LogicalTime = LogicalTime { ms: 0 };

    pub const fn from_ms(ms: u64) -> LogicalTime {
        LogicalTime { ms }
    }

    pub const fn as_ms(self) -> u64 {
        self.ms
    }

    /// The moment `span` later.
    #[must_use]
    pub const fn after(self, span: Span) -> LogicalTime {
        LogicalTime { ms: self.ms.saturating_add(span.ms) }
    }

    /// How long from `earlier` to this moment; nothing if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: LogicalTime) -> Span {
        Span { ms: self.ms.saturating_sub(earlier.ms) }
    }
}

impl fmt::Display for LogicalTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.ms)
    }
}

/// A length of logical time, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    ms: u64,
}

impl Span {
    pub const ZERO: Span = Span { ms: 0 };

    pub const fn from_ms(ms: u64) -> Span {
        Span { ms }
    }

    pub const fn from_secs(secs: u64) -> Span {
        Span { ms: secs.saturating_mul(1_000) }
    }

    pub const fn as_ms(self) -> u64 {
        self.ms
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.ms)
    }
}
