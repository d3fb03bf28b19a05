//! What a command did to others than its sender.

use crate::id::{ActorId, FenceToken, PublicSessionId, RequestId, SessionId};
use crate::name::LockName;
use crate::outcome::Outcome;

/// Something that happened in the table. The leader acts on it (answers the parked call, tells the
/// holder); every replica can record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    SessionOpened {
        session: SessionId,
        public: PublicSessionId,
    },
    SessionEnded {
        session: SessionId,
        public: PublicSessionId,
        reason: EndReason,
    },
    /// A hold began, at once or after a wait.
    Granted {
        name: LockName,
        session: SessionId,
        request: RequestId,
        actor: ActorId,
        token: FenceToken,
    },
    /// A request took its place in the queue.
    Queued {
        name: LockName,
        session: SessionId,
        request: RequestId,
        actor: ActorId,
    },
    /// A queued acquire has its answer: `Granted`, `TimedOut`, `Cancelled`, or rejected because its
    /// session ended.
    WaitEnded {
        name: LockName,
        session: SessionId,
        request: RequestId,
        outcome: Outcome,
    },
    /// The holder gave it back.
    Released {
        name: LockName,
        session: SessionId,
        token: FenceToken,
    },
    /// The hold ended without its holder's doing.
    HoldEnded {
        name: LockName,
        session: SessionId,
        request: RequestId,
        token: FenceToken,
        reason: EndReason,
    },
}

/// Why a hold or a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Its TTL passed.
    Ttl,
    /// The hold's max-hold passed.
    MaxHold,
    /// The session was closed by its owner.
    Closed,
    /// The session's stream broke and did not come back within the linger time.
    Disconnected,
    /// The session to which the hold belonged expired.
    SessionExpired,
}
