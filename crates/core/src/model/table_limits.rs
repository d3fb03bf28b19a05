//! What the whole table may hold.

/// What the whole table may hold. Replicated, and changed by operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// As [`crate::LockTable::size_bytes`] counts them.
    pub bytes: u64,
    /// Locks that are held, awaited or closed.
    pub locks: u64,
}

impl TableLimits {
    /// A snapshot of a larger table could not be sent.
    pub const BYTES_MAX: u64 = 3 << 30;
    /// Less would leave no room for anything.
    pub const BYTES_MIN: u64 = 64 << 10;
    pub const LOCKS_MAX: u64 = 100_000_000;
    pub const LOCKS_MIN: u64 = 1;

    pub fn are_possible(&self) -> bool {
        (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&self.bytes)
            && (Self::LOCKS_MIN..=Self::LOCKS_MAX).contains(&self.locks)
    }
}

impl Default for TableLimits {
    fn default() -> Self {
        TableLimits { bytes: 1 << 30, locks: 1_000_000 }
    }
}
