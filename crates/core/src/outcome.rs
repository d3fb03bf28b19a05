//! What came of a command, for whoever sent it.

use core::fmt;

use crate::id::{FenceToken, PublicSessionId};
use crate::name::LockName;
use crate::time::{LogicalTime, Span};

/// The answer to a command. A [`Rejection`] is one of them: it is deterministic, replicated and as
/// final as a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answer to `OpenSession` and `AttachStream`.
    SessionOpen {
        public: PublicSessionId,
        ttl: Span,
        linger: Span,
    },
    /// Answer to `Touch`.
    Touched {
        ttl: Span,
    },
    /// Answer to `CloseSession`.
    SessionClosed,
    /// Answer to `Acquire`, and with [`crate::Event::WaitEnded`] to one that waited.
    Granted(Grant),
    /// The acquire waits. Its answer comes later, with an event; `position` 1 is next in line.
    Queued {
        position: u64,
    },
    /// Somebody else holds it and the request was not willing to wait.
    Busy,
    /// The wait's deadline passed.
    TimedOut,
    /// The wait was cancelled.
    Cancelled,
    /// Answer to `Cancel`: the acquire will not be granted.
    CancelDone,
    /// Answer to `Cancel`: too late, it is held.
    CancelTooLate(Grant),
    /// Answer to `Cancel`: too late, it had ended without a hold.
    CancelNothing,
    /// Answer to `Release`.
    Release(ReleaseAnswer),
    /// Answer to `Renew`.
    Renewed {
        deadline: Option<LogicalTime>,
        session_deadline: LogicalTime,
    },
    /// Answer to commands that nobody waits for: `DetachStream`, `BeginTerm`, `Tick`.
    Done,
    Rejected(Rejection),
}

/// A hold as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub name: LockName,
    pub token: FenceToken,
    /// When the hold ends on its own (own TTL or max-hold, whichever is earlier).
    pub deadline: Option<LogicalTime>,
    /// When the session ends unless it is heard of again.
    pub session_deadline: LogicalTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAnswer {
    Released,
    /// Held under this token by another session, or never this session's.
    NotOwner,
    AlreadyReleased,
    /// The hold had ended on its own before the release came.
    Expired,
}

/// Why the table refuses a command. Nothing was changed by it, except that the session was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Never opened, closed, or expired: its locks are free.
    UnknownSession,
    /// `OpenSession` for an id that is in use with other settings, or whose session has ended.
    SessionExists,
    /// `Renew` of something that the session does not hold under this token.
    NotHeld,
    TooManySessions,
    TooManyHolds,
    TooManyWaits,
    QueueFull,
    TooManyUnacknowledged,
    /// A retry of a request whose answer the session said it had.
    AnswerDiscarded,
    /// The id was used for another kind of request, or another resource.
    RequestIdReused,
    /// A retried acquire had been granted, and the hold has ended since.
    GrantEnded,
    InvalidRequestId,
    InvalidTtl,
    InvalidWait,
    InvalidMetadata,
    InvalidOwner,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejection::UnknownSession => {
                "the session is unknown: it was never opened, was closed, or has expired, and its \
                 locks are free; open a new one"
            }
            Rejection::SessionExists => {
                "the session id is in use with other settings, or was in use before; choose a \
                 random one"
            }
            Rejection::NotHeld => "the session does not hold the lock under this token",
            Rejection::TooManySessions => "the cluster has as many sessions as it can; close some",
            Rejection::TooManyHolds => "the session holds as many locks as one session can",
            Rejection::TooManyWaits => "the session waits for as many locks as one session can",
            Rejection::QueueFull => "the queue of this lock is full; try again later",
            Rejection::TooManyUnacknowledged => {
                "too many answers wait to be acknowledged; send acked_through"
            }
            Rejection::AnswerDiscarded => {
                "the session has acknowledged the answer to this request id, and it is gone"
            }
            Rejection::RequestIdReused => {
                "the request id was used for another request of this session; use a new one"
            }
            Rejection::GrantEnded => {
                "the lock had been granted to this request, and the hold has ended since; ask \
                 again under a new request id"
            }
            Rejection::InvalidRequestId => "a request id must be above 0",
            Rejection::InvalidTtl => {
                "the TTL must be between 100 ms and 24 h, a max-hold at most 30 d"
            }
            Rejection::InvalidWait => "the wait must be at most 24 h",
            Rejection::InvalidMetadata => "the metadata must be at most 1,024 bytes",
            Rejection::InvalidOwner => "each text of the owner must be at most 256 bytes",
        })
    }
}
