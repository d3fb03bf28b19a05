//! What can be asked of the lock table. What each verb does is told in its file under `rules/`.

use alloc::boxed::Box;
use alloc::string::String;

use crate::model::access::change::ChangeAccess;
use crate::model::access::identity::Identity;
use crate::model::id::{
    ActorId, FenceToken, LogIndex, PublicSessionId, RequestId, SessionId, StreamId,
};
use crate::model::name::LockName;
use crate::model::rules_version::RulesVersion;
use crate::model::time::{LogicalTime, Span};

mod check;
mod encode;

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
    /// All of them at one moment, or none.
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
    /// The caller hung up before it was answered, and does not come back for the answer: the acquire is undone, as if
    /// it had never been sent.
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
    /// Other metadata for a hold: what its holder wants to be seen with it.
    Proclaim {
        call: Call,
        hold: HoldRef,
        metadata: Box<[u8]>,
    },
    /// The holder hands an exclusive lock to one who waits for it, past all who came before.
    Transfer {
        call: Call,
        hold: HoldRef,
        to: PublicSessionId,
    },
    /// An operator steps in.
    Intervene(Intervention),
    /// The first command of every leader. Sessions that would end sooner live for `grace` more, so
    /// that their owners can find the new leader; at most once since they were last heard of.
    BeginTerm {
        grace: Span,
    },
    /// Ends what is due at the stamp of this command, and nothing else ever does.
    Tick,
    /// The leader has published so many events, the last of them of the log entry `index`, and the elections up
    /// to this term. The first one ever begins the count. See [`Publication`](crate::Publication).
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
}

/// Who sends a request, and under which number.
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

/// Who is behind a session, for people who look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub application: String,
    pub host: String,
    pub pid: u32,
    pub note: String,
}

/// Which hold is meant: it must be the sender's. A late copy can never mean a newer hold, because that
/// has another token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRef {
    pub name: LockName,
    pub token: FenceToken,
    /// The acquire that it answers; zero if the sender does not care. It matters only to a session that
    /// holds one resource shared several times: these holds have one token.
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

/// One resource of an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: LockName,
    pub mode: Mode,
}

/// On which terms somebody wants to hold something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// How long to stand in the queue; zero means try.
    pub wait: Span,
    pub policy: Policy,
    /// When the actor first asked. Without it an actor is as old as its session; a time in the future
    /// counts as now.
    pub since: Option<LogicalTime>,
    /// An older actor that asks by [`Policy::WoundWait`] may take the hold away.
    pub preemptible: bool,
    /// If this actor holds the resource already, count one more instead of waiting for oneself.
    pub reentrant: bool,
    /// The hold's own TTL.
    pub ttl: Option<Span>,
    /// The hold ends after this time, whatever is renewed.
    pub max_hold: Option<Span>,
    /// If the hold ends without being given back, the resource stays closed for so long.
    pub lock_delay: Option<Span>,
    pub metadata: Box<[u8]>,
}

/// What to do when somebody else is in the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Wait, unless that would close a cycle of waits.
    #[default]
    Detect,
    /// Wait, whatever comes of it.
    Wait,
    /// Wait for younger actors only; be refused by an older one.
    WaitDie,
    /// Take the preemptible holds of younger actors away; wait for the rest.
    WoundWait,
}

/// How a resource is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Exclusive,
    Shared,
    /// One of `limit` permits; zero stands for the limit that an operator has set.
    Permit {
        limit: u32,
    },
}

/// What an operator does, with name and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervention {
    pub by: Box<str>,
    pub reason: Box<str>,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ends the holds of a resource: those under this token, or whatever is held.
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
    /// Nothing under the prefix is granted until then; the rest goes on.
    Freeze {
        prefix: Box<str>,
        ttl: Span,
    },
    Thaw {
        prefix: Box<str>,
    },
    /// The number of permits of a resource, from now on; none forgets it.
    SetPermits {
        name: LockName,
        limit: Option<u32>,
    },
    KillSession {
        session: PublicSessionId,
    },
    /// Opens a resource that a lock delay keeps closed.
    Reopen {
        name: LockName,
    },
    /// What the whole table may hold; none leaves a limit as it is.
    SetLimits {
        bytes: Option<u64>,
        locks: Option<u64>,
    },
}
