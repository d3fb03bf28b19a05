//! What can be asked of the lock table. Each verb has a file of its own in this folder, which says
//! what it does to the table.

use alloc::boxed::Box;
use alloc::string::String;

use crate::id::{ActorId, FenceToken, PublicSessionId, RequestId, SessionId, StreamId};
use crate::name::LockName;
use crate::time::Span;

mod acquire;
mod cancel;
mod check;
mod encode;
mod release;
mod renew;
mod session;
mod tick;

/// One change of the lock table, as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    OpenSession(OpenSession),
    /// The session's stream is now this one.
    AttachStream {
        session: SessionId,
        stream: StreamId,
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
    /// Ends the wait of the acquire that was sent as `target`; if that has not arrived yet, it will
    /// find itself cancelled.
    Cancel {
        call: Call,
        target: RequestId,
    },
    Release {
        call: Call,
        name: LockName,
        token: FenceToken,
    },
    /// A new TTL for one hold, counted from now; without one, the TTL it had.
    Renew {
        call: Call,
        name: LockName,
        token: FenceToken,
        ttl: Option<Span>,
    },
    /// The first command of every leader. Sessions that would end sooner live for `grace` more, so
    /// that their owners can find the new leader; at most once since they were last heard of.
    BeginTerm {
        grace: Span,
    },
    /// Ends what is due at the stamp of this command, and nothing else ever does.
    Tick,
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
}

/// Who is behind a session, for people who look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub application: String,
    pub host: String,
    pub pid: u32,
    pub note: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    pub call: Call,
    pub actor: ActorId,
    pub name: LockName,
    pub mode: Mode,
    /// How long to stand in the queue; zero means try.
    pub wait: Span,
    /// The hold's own TTL.
    pub ttl: Option<Span>,
    /// The hold ends after this time, whatever is renewed.
    pub max_hold: Option<Span>,
    pub metadata: Box<[u8]>,
}

/// How a resource is held. It has a byte to itself even with a single mode, so that "no hold" fits
/// into the size of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    Exclusive,
}
