//! What a client can ask, as its history tells it and as the lock table hears it.

use holdfast_core::command::{Acquire, Call, HoldRef, Mode, OpenSession, Owner, Policy, Terms};
use holdfast_core::{
    ActorId, Command, FenceToken, LockName, PublicSessionId, RequestId, SessionId, Span, StreamId,
};

use crate::history::Input;
use crate::message::Body;

#[derive(Clone, Debug)]
pub(super) enum Ask {
    Open { public: PublicSessionId, stream: StreamId, ttl: Span, linger: Span },
    Attach { stream: StreamId },
    Touch,
    Close,
    Acquire { name: LockName, wait: Span, ttl: Option<Span>, max_hold: Option<Span> },
    Cancel { target: RequestId },
    Release { name: LockName, token: FenceToken },
    Renew { hold: RequestId, name: LockName, token: FenceToken, ttl: Option<Span> },
    Status { name: LockName },
}

impl Ask {
    /// An attached stream keeps a session alive and does nothing else that a client can see, so the
    /// history calls it a touch.
    pub(super) fn input(&self) -> Input {
        match self {
            Ask::Open { ttl, .. } => Input::OpenSession { ttl_ms: ttl.as_ms() },
            Ask::Attach { .. } | Ask::Touch => Input::Touch,
            Ask::Close => Input::CloseSession,
            Ask::Acquire { name, wait, ttl, max_hold } => Input::Acquire {
                name: name.clone(),
                wait_ms: wait.as_ms(),
                ttl_ms: ttl.map(Span::as_ms),
                max_hold_ms: max_hold.map(Span::as_ms),
            },
            Ask::Cancel { target } => Input::Cancel { target: *target },
            Ask::Release { name, token } => Input::Release { name: name.clone(), token: *token },
            Ask::Renew { name, token, ttl, .. } => {
                Input::Renew { name: name.clone(), token: *token, ttl_ms: ttl.map(Span::as_ms) }
            }
            Ask::Status { name } => Input::Status { name: name.clone() },
        }
    }

    pub(super) fn body(
        &self,
        session: SessionId,
        request: RequestId,
        acked_through: RequestId,
    ) -> Body {
        let call = Call { session, request, acked_through };
        Body::Command(match self.clone() {
            Ask::Open { public, stream, ttl, linger } => Command::OpenSession(OpenSession {
                session,
                public,
                stream: Some(stream),
                ttl,
                linger,
                owner: Owner::default(),
            }),
            Ask::Attach { stream } => Command::AttachStream { session, stream },
            Ask::Touch => Command::Touch { session, acked_through },
            Ask::Close => Command::CloseSession { session },
            Ask::Acquire { name, wait, ttl, max_hold } => Command::Acquire(Acquire {
                call,
                actor: ActorId(0),
                name,
                mode: Mode::Exclusive,
                terms: Terms { wait, policy: Policy::Wait, ttl, max_hold, ..Terms::default() },
            }),
            Ask::Cancel { target } => Command::Cancel { call, target },
            Ask::Release { name, token } => Command::Release { call, hold: hold(name, token) },
            Ask::Renew { name, token, ttl, .. } => {
                Command::Renew { call, hold: hold(name, token), ttl }
            }
            Ask::Status { name } => return Body::Status(name),
        })
    }
}

fn hold(name: LockName, token: FenceToken) -> HoldRef {
    HoldRef { name, token, acquire: RequestId(0) }
}
