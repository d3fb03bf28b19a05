//! The mode of a lock: how it is held.

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Exclusive,
    Shared,
    /// One of `limit` permits; zero stands for the limit that an operator has set.
    Permit {
        limit: u32,
    },
}
