//! Why a hold was lost, and why a request did not succeed.

use std::fmt;
use std::time::Duration;

use holdfast_proto::v1;
use holdfast_proto::v1::{EndReason, Failure, Reason};

/// A node that tells more is asked again all the same: its quota may be another one by then.
const RETRY_AFTER_MS_MAX: u64 = 60_000;

/// Why a hold ended without being released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The local clock says so; no message was needed for it.
    #[error("no heartbeat was answered within the session's TTL, so the lock may have ended")]
    Expired,
    /// The local clock says so too: the hold's own TTL or its maximum time is over.
    #[error("the hold's own time, its TTL or its maximum, is over")]
    OwnTimeOver,
    #[error("the hold's own TTL passed without a renewal")]
    HoldTtl,
    #[error("the hold reached its maximum time")]
    MaxHold,
    #[error("the session expired")]
    SessionExpired,
    #[error("the session was closed")]
    SessionClosed,
    #[error("the stream broke and did not come back within the linger time")]
    Disconnected,
    #[error("an older actor took the lock away")]
    Wounded,
    #[error("an operator broke the lock")]
    Broken,
    #[error("an operator ended the session")]
    SessionKilled,
    /// A credential was revoked, or its time is over, and the program had no other one in time. The cluster ends the
    /// lock when the session's TTL or linger time is over, if it has not ended it with the credential.
    #[error(
        "no node accepts this client any more, so it can neither keep the lock nor release it; the cluster ends the \
         lock when the session's TTL is over, or before"
    )]
    Denied,
    #[error("the lock was handed to another session")]
    Transferred,
    /// Outside of the cluster: the server lost its data, or another program removed the lock.
    #[error("the server that kept the lock no longer has it")]
    Gone,
    /// The program chose to work without a lock while the efficiency tier is down.
    #[error("nothing is held: the efficiency tier was down, and work goes on without a lock")]
    NotLocked,
    /// It was held in the efficiency tier, which lives in one leader's memory.
    #[error("the leader changed, and with it ended what was held in the efficiency tier")]
    LeaderChanged,
    /// It was held in the efficiency tier: another leader may grant it, and this client would not learn of it.
    #[error(
        "the connection to the leader was lost, and with it what was held in the efficiency tier"
    )]
    LeaderUnreachable,
    /// The cluster ended the hold, for a reason that this version does not know.
    #[error("the lock was ended by the cluster")]
    Ended,
}

/// The lock is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lock is lost: {reason}")]
pub struct Lost {
    pub reason: LossReason,
}

/// The cluster refused an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    pub reason: Reason,
    pub message: String,
    pub may_have_happened: bool,
    /// The same request is refused again before this time has passed, if that is known.
    pub retry_after: Option<Duration>,
    /// By which version of the cluster's map a group refused a lock that it does not own; 0 otherwise.
    pub map_epoch: u64,
}

/// No node answered within the caller's timeout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no answer from the cluster in time: {message}")]
pub struct Unavailable {
    /// The nodes that were tried, and their errors.
    pub message: String,
    pub cause: UnavailableCause,
    pub may_have_happened: bool,
}

/// Why no node answered, which says what the operator has to repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnavailableCause {
    /// There was no connection to any node.
    NotReached,
    /// A node answered, and there is no leader.
    NoLeader,
    Other,
}

/// Why a request of a program did not succeed. Each operation has a few of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    /// Others hold the lock, and the request was not to wait.
    Busy,
    TimedOut,
    Deadlock(Cycle),
    /// An older actor is in the way, and the request was to wait for younger ones only.
    Died {
        since: Since,
    },
    /// The session to which the lock was to be handed does not wait for it.
    NoSuchWaiter,
    /// The hold that the request is about, or that it was granted, has ended.
    Lost(Lost),
    SessionLost(LossReason),
    Rejected(Rejection),
    /// The caller's time was over before there was an answer.
    Unavailable(Unavailable),
    /// The session cannot answer this read of a lock. A unary call can.
    NotServed,
    /// The client is closed.
    Closed,
}

/// A cycle of waits: each actor waits for the next, and the last for the first. The first is the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle(pub Vec<CycleLink>);

/// An actor in a cycle of waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CycleLink {
    pub public_session_id: String,
    pub actor: u64,
    /// What it waits for. The next actor in the cycle blocks it.
    pub waits_for: String,
}

/// When an actor first asked, in the cluster's logical time. It decides which actor is older.
///
/// A transaction that is to have an age of its own, and not that of its session, asks for its first
/// lock with [`Since::NOW`], for the others with the `since` of the first guard, and after it had to give way
/// with the `since` that it was told then: so it grows older than all that come later, and none starves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Since(pub u64);

impl Since {
    /// When the request reaches the lock table: a time in the future counts as that.
    pub const NOW: Since = Since(u64::MAX);
}

impl Cycle {
    pub fn of(deadlock: v1::Deadlock) -> Cycle {
        let link = |link: v1::CycleLink| CycleLink {
            public_session_id: link.public_session_id,
            actor: link.actor,
            waits_for: link.waits_for,
        };
        Cycle(deadlock.cycle.into_iter().map(link).collect())
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, link) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}session {}", link.public_session_id)?;
            if link.actor != 0 {
                write!(f, " (actor {})", link.actor)?;
            }
            write!(f, " waits for {}", link.waits_for)?;
        }
        Ok(())
    }
}

impl LossReason {
    pub fn of_hold(reason: EndReason) -> LossReason {
        match reason {
            EndReason::Ttl => LossReason::HoldTtl,
            EndReason::MaxHold => LossReason::MaxHold,
            EndReason::Closed => LossReason::SessionClosed,
            EndReason::Disconnected => LossReason::Disconnected,
            EndReason::Wounded => LossReason::Wounded,
            EndReason::Broken => LossReason::Broken,
            EndReason::Killed => LossReason::SessionKilled,
            EndReason::Transferred => LossReason::Transferred,
            EndReason::SessionExpired => LossReason::SessionExpired,
            EndReason::Unspecified => LossReason::Ended,
        }
    }

    pub fn of_session(reason: EndReason) -> LossReason {
        match reason {
            EndReason::Ttl => LossReason::SessionExpired,
            other => LossReason::of_hold(other),
        }
    }
}

/// When the node that refused would take the request, if it says so.
pub fn retry_after(failure: &Failure) -> Option<Duration> {
    let ms = failure.retry_after_ms;
    (ms > 0).then(|| Duration::from_millis(ms.min(RETRY_AFTER_MS_MAX)))
}

impl Rejection {
    pub fn of(failure: Failure) -> Rejection {
        Rejection {
            reason: failure.reason(),
            may_have_happened: failure.may_have_happened,
            retry_after: retry_after(&failure),
            map_epoch: failure.map_epoch,
            message: failure.message,
        }
    }

    /// An answer that this client does not understand.
    pub(crate) fn unknown(message: String) -> Rejection {
        let reason = Reason::Unspecified;
        Rejection { reason, message, may_have_happened: true, retry_after: None, map_epoch: 0 }
    }

    pub(crate) fn unknown_outcome() -> Rejection {
        Rejection::unknown("an outcome that this version does not know".to_owned())
    }

    /// Whether another group than the one that was asked owns the lock, or some of the locks.
    pub fn is_of_other_group(&self) -> bool {
        matches!(self.reason, Reason::WrongGroup | Reason::SeveralGroups)
    }

    /// The limits that refused the request can have room again later, a freeze ends, and another group may own the
    /// lock; a wrong request stays wrong.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.reason,
            Reason::TooManySessions
                | Reason::TooManyHolds
                | Reason::TooManyWaits
                | Reason::QueueFull
                | Reason::TooManyUnacknowledged
                | Reason::Frozen
                | Reason::QuotaExceeded
                | Reason::RateLimited
                | Reason::WrongGroup
        )
    }
}
