//! What a client can ask, as its history tells it and as the lock table hears it.

use holdfast_core::command::{
    Acquire, AcquireAll, Action, Call, HoldRef, Intervention, Mode, OpenSession, Owner, Policy,
};
use holdfast_core::{
    Command, FenceToken, LockName, PublicSessionId, RequestId, SessionId, Span, StreamId,
};

use super::session::HoldKey;
use crate::history::{Input, Take};
use crate::message::Body;

#[derive(Clone, Debug)]
pub(super) enum Ask {
    Open { public: PublicSessionId, stream: Option<StreamId>, ttl: Span, linger: Span },
    Attach { stream: StreamId },
    Touch,
    Close,
    Take(Box<Take>),
    Cancel { target: RequestId },
    Release(Meant),
    Renew { hold: Meant, ttl: Option<Span> },
    Convert { hold: Meant, to: Mode, wait: Span, policy: Policy },
    Proclaim { hold: Meant },
    Transfer { hold: Meant, to: PublicSessionId },
    Intervene(Action),
    Status { name: LockName },
}

/// A hold of its own that a client speaks about.
#[derive(Clone, Debug)]
pub(super) struct Meant {
    pub(super) key: HoldKey,
    pub(super) name: LockName,
    pub(super) token: FenceToken,
    /// Zero if the token says enough.
    pub(super) acquire: RequestId,
}

impl Ask {
    /// An attached stream keeps a session alive and does nothing else that a client can see, so the
    /// history calls it a touch.
    pub(super) fn input(&self) -> Input {
        match self.clone() {
            Ask::Open { ttl, .. } => Input::OpenSession { ttl_ms: ttl.as_ms() },
            Ask::Attach { .. } | Ask::Touch => Input::Touch,
            Ask::Close => Input::CloseSession,
            Ask::Take(take) => Input::Take(take),
            Ask::Cancel { target } => Input::Cancel { target },
            Ask::Release(Meant { name, token, .. }) => Input::Release { name, token },
            Ask::Renew { hold: Meant { name, token, .. }, ttl } => {
                Input::Renew { name, token, ttl_ms: ttl.map(Span::as_ms) }
            }
            Ask::Convert { hold: Meant { name, token, .. }, to, wait, policy } => {
                Input::Convert { name, token, to, wait_ms: wait.as_ms(), policy }
            }
            Ask::Proclaim { hold: Meant { name, token, .. } } => Input::Proclaim { name, token },
            Ask::Transfer { hold: Meant { name, token, .. }, to } => {
                Input::Transfer { name, token, to }
            }
            Ask::Intervene(action) => Input::Intervene(action),
            Ask::Status { name } => Input::Status { name },
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
                stream,
                ttl,
                linger,
                owner: Owner::default(),
            }),
            Ask::Attach { stream } => Command::AttachStream { session, stream },
            Ask::Touch => Command::Touch { session, acked_through },
            Ask::Close => Command::CloseSession { session },
            Ask::Take(take) => taking(call, *take),
            Ask::Cancel { target } => Command::Cancel { call, target },
            Ask::Release(hold) => Command::Release { call, hold: hold.into() },
            Ask::Renew { hold, ttl } => Command::Renew { call, hold: hold.into(), ttl },
            Ask::Convert { hold, to, wait, policy } => {
                Command::Convert { call, hold: hold.into(), to, wait, policy }
            }
            Ask::Proclaim { hold } => {
                let metadata = request.0.to_le_bytes().into();
                Command::Proclaim { call, hold: hold.into(), metadata }
            }
            Ask::Transfer { hold, to } => Command::Transfer { call, hold: hold.into(), to },
            Ask::Intervene(action) => Command::Intervene(Intervention {
                by: "operator".into(),
                reason: "simulated".into(),
                action,
            }),
            Ask::Status { name } => return Body::Status(name),
        })
    }

    /// The hold that it is about.
    pub(super) fn hold(&self) -> Option<HoldKey> {
        match self {
            Ask::Release(hold)
            | Ask::Renew { hold, .. }
            | Ask::Convert { hold, .. }
            | Ask::Proclaim { hold }
            | Ask::Transfer { hold, .. } => Some(hold.key),
            _ => None,
        }
    }

    /// May it change how the session holds this name?
    pub(super) fn is_about(&self, name: &LockName) -> bool {
        match self {
            Ask::Take(take) => take.members.iter().any(|member| member.name == *name),
            Ask::Release(hold)
            | Ask::Renew { hold, .. }
            | Ask::Convert { hold, .. }
            | Ask::Proclaim { hold }
            | Ask::Transfer { hold, .. } => hold.name == *name,
            _ => false,
        }
    }
}

fn taking(call: Call, take: Take) -> Command {
    let Take { actor, all, members, terms } = take;
    match (all, <[_; 1]>::try_from(members)) {
        (false, Ok([member])) => {
            let (name, mode) = (member.name, member.mode);
            Command::Acquire(Acquire { call, actor, name, mode, terms })
        }
        (_, Ok(one)) => {
            Command::AcquireAll(AcquireAll { call, actor, members: Box::new(one), terms })
        }
        (_, Err(several)) => {
            Command::AcquireAll(AcquireAll { call, actor, members: several.into(), terms })
        }
    }
}

impl From<Meant> for HoldRef {
    fn from(Meant { name, token, acquire, .. }: Meant) -> HoldRef {
        HoldRef { name, token, acquire }
    }
}
