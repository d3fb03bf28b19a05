//! The commands of the lock table. The file of each verb under `rules/` describes what it does.

use alloc::boxed::Box;
use alloc::string::String;

use crate::model::access::change::ChangeAccess;
use crate::model::access::identity::Identity;
use crate::model::access::policy::Access;
use crate::model::id::{
    ActorId, FenceToken, LogIndex, PublicSessionId, RequestId, SessionId, StreamId,
};
use crate::model::name::LockName;
use crate::model::rules_version::RulesVersion;
use crate::model::slot::{MapEpoch, SlotSet};
use crate::model::slot_move::MoveStep;
use crate::model::time::{LogicalTime, Span};

mod check;
mod encode;

pub use crate::model::mode::Mode;

/// One change of the lock table, as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    OpenSession(OpenSession),
    /// The session's stream is now this one.
    AttachStream {
        session: SessionId,
        stream: StreamId,
        /// As in [`OpenSession`].
        identity: Option<Box<Identity>>,
    },
    /// This stream broke. Without effect if the session has come back on another one.
    DetachStream {
        session: SessionId,
        stream: StreamId,
    },
    /// A heartbeat.
    Touch {
        session: SessionId,
        acked_through: RequestId,
    },
    /// Frees all its locks and all its places in queues.
    CloseSession {
        session: SessionId,
    },
    Acquire(Acquire),
    /// Acquires all of the locks at one moment, or none.
    AcquireAll(AcquireAll),
    /// Another mode for a hold: from exclusive to shared at once, from shared to exclusive when the
    /// other readers are gone. The hold is never given up in between.
    Convert {
        call: Call,
        hold: HoldRef,
        to: Mode,
        wait: Span,
        policy: Policy,
    },
    /// Ends the wait of the acquire that was sent as `target`; if that has not arrived yet, it will
    /// find itself cancelled.
    Cancel {
        call: Call,
        target: RequestId,
    },
    /// The caller hung up before it was answered, and will not retry. The acquire is undone as if it had never been
    /// sent.
    Abandon {
        session: SessionId,
        request: RequestId,
    },
    Release {
        call: Call,
        hold: HoldRef,
    },
    /// A new TTL for one hold, counted from now; without one, the TTL it had.
    Renew {
        call: Call,
        hold: HoldRef,
        ttl: Option<Span>,
    },
    /// New metadata for a hold, which everyone may read.
    Proclaim {
        call: Call,
        hold: HoldRef,
        metadata: Box<[u8]>,
    },
    /// The holder hands an exclusive lock to one of its waiters, ahead of all earlier waiters.
    Transfer {
        call: Call,
        hold: HoldRef,
        to: PublicSessionId,
    },
    /// An operator's intervention.
    Intervene(Intervention),
    /// The first command of every leader. Sessions that would end within `grace` get that much more time, so that their
    /// clients can find the new leader. A session gets it at most once since its last sign of life.
    BeginTerm {
        grace: Span,
    },
    /// Ends everything that is due at the stamp of this command. No other command expires anything.
    Tick,
    /// The leader has published so many events, the last of them of the log entry `index`, and the elections up to this
    /// term. The first such command begins the count. See [`Publication`](crate::Publication).
    EventsPublished {
        through: u64,
        index: LogIndex,
        term: u64,
    },
    /// From here on the table follows these rules, if it does not follow later ones already.
    AdoptRules {
        version: RulesVersion,
    },
    /// An administrator changes who may do what. It is in force for all that follows in the log.
    ChangeAccess(Box<ChangeAccess>),
    /// The policy of the root group, for another group. Without effect unless its generation is higher than that of the
    /// group's own policy. Otherwise it is in force for all that follows in the log of this group.
    AdoptPolicy(Box<Access>),
    /// From here on the group owns these slots and no others, as of this epoch of the map. Refused unless the epoch is
    /// higher than the one before.
    SetOwnership {
        epoch: MapEpoch,
        slots: SlotSet,
    },
    /// A step of a move of slots between groups.
    MoveSlots(Box<MoveStep>),
}

/// The session that sends a request, and the number of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub session: SessionId,
    pub request: RequestId,
    /// The session has its answers up to here; the table may forget them.
    pub acked_through: RequestId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    pub session: SessionId,
    pub public: PublicSessionId,
    /// The stream that opened it, if it came by one.
    pub stream: Option<StreamId>,
    pub ttl: Span,
    /// How long it outlives its broken stream.
    pub linger: Span,
    pub owner: Owner,
    /// What the session does is checked against the rights of this identity. Without one, nothing is.
    pub identity: Option<Box<Identity>>,
}

/// A description of the session's client, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub application: String,
    pub host: String,
    pub pid: u32,
    pub note: String,
}

/// Identifies a hold of the sender. A late copy of a request cannot refer to a newer hold, which has another token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRef {
    pub name: LockName,
    pub token: FenceToken,
    /// The acquire of the hold; zero if the sender does not care. It matters only to a session that holds one lock
    /// shared several times, because these holds have the same token.
    pub acquire: RequestId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    pub call: Call,
    pub actor: ActorId,
    pub name: LockName,
    pub mode: Mode,
    pub terms: Terms,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireAll {
    pub call: Call,
    pub actor: ActorId,
    /// Each name once.
    pub members: Box<[Member]>,
    pub terms: Terms,
}

/// One lock of an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: LockName,
    pub mode: Mode,
}

/// The options of an acquire: how it waits, and how its hold behaves. (Not Raft's terms.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// How long to wait in the queue; zero means try.
    pub wait: Span,
    pub policy: Policy,
    /// When the actor first asked. Without it, an actor is as old as its session. A time in the future counts as now.
    pub since: Option<LogicalTime>,
    /// An older actor with [`Policy::WoundWait`] may take the hold away.
    pub preemptible: bool,
    /// If the same actor holds the lock already, the hold is counted once more. Otherwise it would wait for itself.
    pub reentrant: bool,
    /// The hold's own TTL.
    pub ttl: Option<Span>,
    /// The hold ends after this time, whatever is renewed.
    pub max_hold: Option<Span>,
    /// If the hold ends without a release, the lock stays locked, without a holder, for so long.
    pub lock_delay: Option<Span>,
    pub metadata: Box<[u8]>,
}

/// What to do when another actor holds the lock, or waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Wait, unless that would close a cycle of waits.
    #[default]
    Detect,
    /// Wait, even in a cycle of waits.
    Wait,
    /// Wait for younger actors only. An older one causes a refusal.
    WaitDie,
    /// Take the preemptible holds of younger actors away, and wait for all others.
    WoundWait,
}

/// An operator's action, with the operator's name and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervention {
    pub by: Box<str>,
    pub reason: Box<str>,
    pub action: Action,
    /// It is checked against the rights that this identity has when it is applied. Without one, nothing is.
    pub identity: Option<Box<Identity>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ends the holds of a lock: those under this token, or whatever is held.
    Break {
        name: LockName,
        token: Option<FenceToken>,
    },
    /// Hands the exclusive lock that is held under this token to a session that waits for it.
    Transfer {
        name: LockName,
        token: FenceToken,
        to: PublicSessionId,
    },
    /// Nothing under the prefix is granted until then. Other operations go on.
    Freeze {
        prefix: Box<str>,
        ttl: Span,
    },
    Thaw {
        prefix: Box<str>,
    },
    /// Sets the number of permits of a lock; none removes the setting.
    SetPermits {
        name: LockName,
        limit: Option<u32>,
    },
    KillSession {
        session: PublicSessionId,
    },
    /// Opens a lock that a lock delay keeps closed.
    Reopen {
        name: LockName,
    },
    /// What the whole table may hold; none leaves a limit as it is.
    SetLimits {
        bytes: Option<u64>,
        locks: Option<u64>,
    },
}
