//! The outcome of a command, for its sender.

use alloc::boxed::Box;
use core::fmt;

use crate::model::access::change::AccessRefusal;
use crate::model::access::quota::QuotaKind;
use crate::model::id::{ActorId, FenceToken, PublicSessionId, RequestId};
use crate::model::mode::Mode;
use crate::model::name::LockName;
use crate::model::publication::Publication;
use crate::model::slot::MapEpoch;
use crate::model::slot_move::{Departures, MoveEnd};
use crate::model::time::{LogicalTime, Span};

/// The answer to a command. A [`Rejection`] is one of them: it is deterministic, replicated and as
/// final as a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answer to `OpenSession` and `AttachStream`.
    SessionOpen {
        public: PublicSessionId,
        ttl: Span,
        linger: Span,
        /// As in `Touched`.
        departures: Option<Departures>,
    },
    /// Answer to `Touch`.
    Touched {
        ttl: Span,
        /// What has left of the session. If it is not what the client knew, the answer says nothing about the holds
        /// that the client had before: some of them may be no holds of this session any more. It asks about each.
        departures: Option<Departures>,
    },
    /// Answer to `CloseSession`.
    SessionClosed,
    /// Answer to `Acquire` and `Convert`, and with [`crate::Event::WaitEnded`] to one that waited.
    Granted(Grant),
    /// Answer to `AcquireAll`, in the order of the names.
    GrantedAll(Box<[Grant]>),
    /// The acquire waits. An event brings its answer later. `position` 1 is the first in the queue. An acquire in
    /// several queues gets the worst of its positions.
    Queued {
        position: u64,
    },
    /// Another actor holds the lock, and the request does not wait.
    Busy,
    /// The wait's deadline passed.
    TimedOut,
    /// The wait was cancelled.
    Cancelled,
    /// Waiting would have closed a cycle: each of these waits for the next, and the last for the first. The first is
    /// the sender.
    Deadlock(Box<[CycleLink]>),
    /// An older actor holds the lock, and the request waits for younger ones only. A retry with this `since` keeps
    /// the age.
    Died {
        since: LogicalTime,
    },
    /// Answer to `Cancel`: the acquire will not be granted.
    CancelDone,
    /// Answer to `Cancel`: too late, it is held.
    CancelTooLate(Box<[Grant]>),
    /// Answer to `Cancel`: too late, it had ended without a hold.
    CancelNothing,
    /// Answer to `Release`.
    Release(ReleaseAnswer),
    /// Answer to `Renew`.
    Renewed {
        deadline: Option<LogicalTime>,
        session_deadline: LogicalTime,
    },
    /// Answer to `Proclaim`.
    Proclaimed,
    /// Answer to `Transfer`: the other holds it, under this token.
    Transferred {
        token: FenceToken,
    },
    /// Answer to `Intervene`.
    Intervened(Intervened),
    /// Answer to `EventsPublished`: what is published now.
    Published(Publication),
    /// Answer to `ChangeAccess`: the policy has this generation.
    AccessChanged {
        generation: u64,
    },
    /// Answer to commands without a caller, as `DetachStream`, `BeginTerm`, `Tick`; and to `SetOwnership` and the steps
    /// of a move of slots.
    Done,
    Rejected(Rejection),
}

/// A hold as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub name: LockName,
    /// The acquire that identifies the hold: the first one, if it was entered again or converted.
    pub acquire: RequestId,
    /// For a permit it only identifies the hold: permits are not fenceable.
    pub token: FenceToken,
    pub mode: Mode,
    /// When the hold ends on its own (own TTL or max-hold, whichever is earlier).
    pub deadline: Option<LogicalTime>,
    /// When the session ends without another sign of life.
    pub session_deadline: LogicalTime,
}

/// One actor in a cycle of waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleLink {
    pub session: PublicSessionId,
    pub actor: ActorId,
    /// What it waits for. The next actor in the cycle blocks it.
    pub waits_for: LockName,
}

/// What an operator's intervention did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intervened {
    Broken { holds: u64 },
    Transferred { token: FenceToken },
    Frozen { until: LogicalTime },
    Thawed,
    PermitsSet,
    SessionKilled,
    Reopened,
    LimitsSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAnswer {
    Released,
    /// The hold was entered several times, and is now counted once less.
    StillHeld {
        remaining: u32,
    },
    /// Held under this token by another session, or never this session's.
    NotOwner,
    AlreadyReleased,
    /// The hold had expired before the release.
    Expired,
}

/// Why the table refuses a command. The command changed nothing, except that it counts as a sign of life of the
/// session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Never opened, closed, or expired: its locks are free.
    UnknownSession,
    /// `OpenSession` for an id that is in use with other settings, or whose session has ended.
    SessionExists,
    /// `Renew` of something that the session does not hold under this token.
    NotHeld,
    /// The session holds the lock more than once under this token, and the request does not identify one of these
    /// holds.
    AmbiguousHold,
    TooManySessions,
    TooManyHolds,
    TooManyWaits,
    QueueFull,
    TooManyUnacknowledged,
    /// A retry of a request whose answer the session has acknowledged.
    AnswerDiscarded,
    /// The id was used for another kind of request, or another lock.
    RequestIdReused,
    /// A retried acquire had been granted, and the hold has ended since.
    GrantEnded,
    /// An operator has frozen the name, and the request does not wait.
    Frozen,
    /// The actor of an acquire-all holds one of the names.
    AlreadyHeld,
    /// The lock is in use with another number of permits, or an operator has set another.
    OtherPermits {
        limit: u32,
    },
    /// The acquire left the number of permits to the operator, who has set none.
    NoPermitsSet,
    /// The number of permits cannot be forgotten while the lock is in use.
    PermitsInUse,
    TooManyPermitsSet,
    /// `Transfer` to a session that does not wait for this lock alone and exclusively.
    NoSuchWaiter,
    /// `KillSession` of an unknown session.
    NoSuchSession,
    /// `Thaw` of a prefix that is not frozen.
    NotFrozen,
    /// `Reopen` of a name that no lock delay keeps closed.
    NotClosed,
    TooManyFreezes,
    TooManyReentries,
    TooManyNames,
    DuplicateName,
    InvalidMode,
    InvalidPermits,
    InvalidLockDelay,
    InvalidFreeze,
    InvalidIntervention,
    InvalidRequestId,
    InvalidTtl,
    InvalidWait,
    InvalidMetadata,
    InvalidOwner,
    /// The table has as many locks as it may have.
    TooManyLocks {
        limit: u64,
    },
    /// The table takes as many bytes as it may take.
    TooManyBytes {
        limit: u64,
    },
    /// The session takes as many bytes as one session may take.
    SessionTooLarge {
        limit: u64,
    },
    /// The session's principal, or all that use the names with a prefix, have taken what their quota allows.
    QuotaExceeded {
        kind: QuotaKind,
        limit: u64,
        is_of_prefix: bool,
    },
    /// `SetLimits` with no limit, or with one that is not possible.
    InvalidLimits,
    /// The command needs rules that the cluster has not adopted yet. The leader refuses it; it never enters the log.
    RulesNotAdopted,
    /// The policy does not allow it to the session's identity.
    PermissionDenied,
    /// A credential names more roles than it may.
    InvalidIdentity,
    /// `ChangeAccess` was not possible.
    AccessRefused(AccessRefusal),
    /// This group does not own the slot of the lock, as of this epoch of the map. Another group does.
    WrongGroup {
        epoch: MapEpoch,
    },
    /// This group owns some locks of an acquire-all, and other groups own the others.
    SeveralGroups {
        epoch: MapEpoch,
    },
    /// `SetOwnership`, or a step of a move, of an epoch that is not higher than this one, which is in force.
    StaleEpoch {
        epoch: MapEpoch,
    },
    /// Another move of slots of this group has to end first.
    MoveUnderWay,
    /// A step of a move that makes no sense for this group: it does not own the slots, or never heard of the move.
    InvalidMove,
    /// A step of a move that has ended otherwise for this group.
    MoveEnded {
        end: MoveEnd,
    },
    /// The target of a move has so many parts, and the step needs more, or the next one.
    PartsMissing {
        staged: u32,
    },
}

impl Rejection {
    /// The refusal depends on which group owns which slots, and is not kept: the same request may succeed later, or
    /// elsewhere.
    pub fn is_of_placement(self) -> bool {
        matches!(self, Rejection::WrongGroup { .. } | Rejection::SeveralGroups { .. })
    }

    /// The table has no room for the request, or the session has no more of it.
    pub fn is_of_full_table(self) -> bool {
        matches!(
            self,
            Rejection::TooManyLocks { .. }
                | Rejection::TooManyBytes { .. }
                | Rejection::SessionTooLarge { .. }
        )
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Rejection::OtherPermits { limit } = self {
            return write!(f, "the semaphore has {limit} permits; state that number");
        }
        match self {
            Rejection::AccessRefused(refusal) => return refusal.fmt(f),
            Rejection::QuotaExceeded { kind, limit, is_of_prefix } => {
                let of = if *is_of_prefix { "these names" } else { "this user" };
                return write!(
                    f,
                    "the quota of {of} is {limit} {kind}, and this request needs more than is left of it; release some, \
                     or ask an administrator for more (holdfast access quota)"
                );
            }
            Rejection::WrongGroup { epoch } => {
                return write!(
                    f,
                    "another group of the cluster owns this lock (map epoch {epoch}), and this client did not send the \
                     request there: its library knows one group only, so it cannot use all locks of a cluster that has \
                     several"
                );
            }
            Rejection::SeveralGroups { epoch } => {
                return write!(
                    f,
                    "the locks are in several groups of the cluster (map epoch {epoch}), and one acquire-all takes locks \
                     of one group; put the same {{tag}} into all their names"
                );
            }
            Rejection::StaleEpoch { epoch } => {
                return write!(
                    f,
                    "the group has epoch {epoch} of the map already; read the map again and send a higher epoch"
                );
            }
            Rejection::MoveEnded { end } => {
                let end = match end {
                    MoveEnd::Committed => "committed",
                    MoveEnd::Aborted => "aborted",
                };
                return write!(
                    f,
                    "this group has {end} the move of the slots; read the state of both groups again"
                );
            }
            Rejection::PartsMissing { staged } => {
                return write!(
                    f,
                    "the group has {staged} parts of what was in the slots; send it the part with that number next"
                );
            }
            Rejection::TooManyLocks { limit } => {
                return write!(
                    f,
                    "the cluster has as many locks as it may have, {limit}; release locks, let an operator break locks \
                     or end sessions, or raise the limit by 'holdfast cluster limits --locks'"
                );
            }
            Rejection::TooManyBytes { limit } => {
                return write!(
                    f,
                    "the lock table is as large as it may be, {limit} bytes; release locks, let an operator break locks \
                     or end sessions, or raise the limit by 'holdfast cluster limits --bytes'"
                );
            }
            Rejection::SessionTooLarge { limit } => {
                return write!(
                    f,
                    "the session takes as much of the lock table as one session may, {limit} bytes; release locks of \
                     this session, use shorter names or less metadata, or raise the limit by \
                     'holdfast cluster limits --bytes'"
                );
            }
            _ => {}
        }
        f.write_str(match self {
            Rejection::OtherPermits { .. } => "the semaphore has another number of permits",
            Rejection::TooManyLocks { .. }
            | Rejection::TooManyBytes { .. }
            | Rejection::SessionTooLarge { .. } => "the lock table is full",
            Rejection::QuotaExceeded { .. } => "the quota is used up",
            Rejection::WrongGroup { .. }
            | Rejection::SeveralGroups { .. }
            | Rejection::StaleEpoch { .. } => "another group owns the slot",
            Rejection::MoveUnderWay => {
                "slots are moving to or from this group; wait until that move has ended"
            }
            Rejection::InvalidMove => {
                "the step does not belong to a move of this group; read the state of both groups again"
            }
            Rejection::MoveEnded { .. } | Rejection::PartsMissing { .. } => {
                "the step of the move is out of order"
            }
            Rejection::InvalidLimits => {
                "the limits are 64 KiB to 3 GiB, and 1 to 100,000,000 locks; give at least one of them"
            }
            Rejection::UnknownSession => {
                "the session is unknown: it was never opened, was closed, or has expired, and its \
                 locks are free; open a new one"
            }
            Rejection::SessionExists => {
                "the session id is in use with other settings, or was in use before; choose a \
                 random one"
            }
            Rejection::NotHeld => "the session does not hold the lock under this token",
            Rejection::AmbiguousHold => {
                "the session holds the lock several times under this token; say which hold is meant by \
                 the request id of its acquire"
            }
            Rejection::TooManySessions => {
                "the cluster has as many sessions as it can, or more have ended within two minutes than it \
                 remembers; close some, or open fewer in a short time"
            }
            Rejection::TooManyHolds => "the session holds as many locks as one session can",
            Rejection::TooManyWaits => "the session waits for as many locks as one session can",
            Rejection::QueueFull => "the queue of this lock is full; try again later",
            Rejection::TooManyUnacknowledged => {
                "too many answers wait to be acknowledged; send acked_through"
            }
            Rejection::AnswerDiscarded => {
                "the answer to this request id is gone: the session has acknowledged it, or has sent thousands of \
                 requests since; use a new request id"
            }
            Rejection::RequestIdReused => {
                "the request id was used for another request of this session; use a new one"
            }
            Rejection::GrantEnded => {
                "the lock had been granted to this request, and the hold has ended since; ask \
                 again under a new request id"
            }
            Rejection::Frozen => "an operator has frozen the lock; wait for it, or ask again later",
            Rejection::AlreadyHeld => {
                "the actor holds one of these locks already; release it first, or leave it out"
            }
            Rejection::NoPermitsSet => {
                "no number of permits has been set for this semaphore; state one"
            }
            Rejection::PermitsInUse => {
                "the number of permits cannot be forgotten while the semaphore is in use"
            }
            Rejection::TooManyPermitsSet => {
                "as many numbers of permits are set as can be; forget some"
            }
            Rejection::NoSuchWaiter => {
                "the session does not wait for an exclusive hold of this lock alone"
            }
            Rejection::NoSuchSession => "there is no such session",
            Rejection::NotFrozen => "this prefix is not frozen",
            Rejection::NotClosed => "no lock delay keeps this lock closed",
            Rejection::TooManyFreezes => "as many prefixes are frozen as can be; thaw some",
            Rejection::TooManyReentries => "the hold was entered as often as one hold can be",
            Rejection::TooManyNames => "one acquire-all takes 1 to 256 locks",
            Rejection::DuplicateName => "a lock is named twice in one acquire-all",
            Rejection::InvalidMode => {
                "this mode is not possible here: permits are neither converted nor re-entered"
            }
            Rejection::InvalidPermits => "a semaphore has 1 to 1,000,000 permits",
            Rejection::InvalidLockDelay => "the lock delay must be at most 1 h",
            Rejection::InvalidFreeze => {
                "a freeze lasts 1 ms to 30 d, and its prefix has at most 512 bytes and no control \
                 characters"
            }
            Rejection::InvalidIntervention => {
                "an intervention needs a reason; reason and operator have at most 512 bytes each"
            }
            Rejection::InvalidRequestId => "a request id must be above 0",
            Rejection::InvalidTtl => {
                "the TTL must be between 100 ms and 24 h, a max-hold at most 30 d"
            }
            Rejection::InvalidWait => "the wait must be at most 24 h",
            Rejection::InvalidMetadata => "the metadata must be at most 1,024 bytes",
            Rejection::InvalidOwner => "each text of the owner must be at most 256 bytes",
            Rejection::PermissionDenied => {
                "permission denied; ask an administrator of the cluster for a role that allows it"
            }
            Rejection::InvalidIdentity => "a credential names at most 32 roles",
            Rejection::AccessRefused(_) => "the policy was not changed",
            Rejection::RulesNotAdopted => {
                "some node of the cluster runs an older build that does not know this request; \
                 upgrade all nodes, then ask again"
            }
        })
    }
}
