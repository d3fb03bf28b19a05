//! Ids. Each is a separate type, so that none can be passed for another.

use core::fmt;

/// A session: 128 random bits, chosen by the client. It is a secret, because a client that knows it can act as that
/// session. So it has no `Display`, and `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(secret)")
    }
}

/// The name under which a session is shown. A one-way function of the [`SessionId`], computed where
/// the session enters the system, so that it is the same in every group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicSessionId(pub u64);

impl fmt::Display for PublicSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One connection of a session: the number of the hello by which it came. Numbers rise, so that of two
/// the later is known, in whatever order they arrive. Zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A number that the session uses for one request and never again. Zero is not one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A task within a session; zero is the session itself. Scoped to the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorId(pub u64);

/// The fencing token of a grant: never zero, below 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceToken(pub u64);

impl FenceToken {
    /// The highest number a token can have: it fits into a signed 64-bit column.
    pub const MAX: FenceToken = FenceToken((1 << 63) - 1);
}

impl fmt::Display for FenceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A position in the group's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogIndex(pub u64);
