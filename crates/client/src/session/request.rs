//! The requests of a session: how each looks on the wire, and who waits for its answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_proto::v1;
use holdfast_proto::v1::operation::Kind;
use tokio::sync::oneshot;

use super::{Handle, Ticket};
use crate::error::{AcquireError, LossReason, Lost, Rejection, RenewError};
use crate::guard::{Guard, Hold, ReleaseOutcome};

#[derive(Debug)]
pub(crate) enum Request {
    Acquire(AcquireCall),
    /// Of an acquire whose caller is gone.
    Cancel {
        target: u64,
    },
    Release {
        name: String,
        token: u64,
        reply: Option<oneshot::Sender<Result<ReleaseOutcome, Rejection>>>,
    },
    Renew {
        hold: Arc<Hold>,
        ttl: Option<Duration>,
        reply: oneshot::Sender<Result<(), RenewError>>,
    },
    KeepAlive,
    Close {
        reply: Option<oneshot::Sender<()>>,
    },
}

/// One call of `acquire`.
pub(crate) struct AcquireCall {
    /// Without its request id.
    pub(crate) request: v1::AcquireRequest,
    pub(crate) ticket: Ticket,
    /// Dropping the guard in it releases the lock, so a grant that finds no caller is not kept.
    pub(crate) reply: oneshot::Sender<Result<Guard, AcquireError>>,
    pub(crate) on_queued: Option<Box<dyn FnOnce(u64) + Send>>,
    /// Set when it first goes out, for the caller who runs out of patience.
    pub(crate) was_sent: Arc<AtomicBool>,
    /// For the guard; `None` once the caller is gone, so that the call alone does not keep the task
    /// alive.
    pub(crate) handle: Option<Handle>,
}

impl AcquireCall {
    /// The caller is gone: a grant is to be released.
    pub(crate) fn abandon(&mut self) {
        self.handle = None;
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.handle.is_none()
    }
}

impl Request {
    pub(crate) fn to_operation(&self, request_id: u64) -> v1::Operation {
        let kind = match self {
            Request::Acquire(call) => {
                Kind::Acquire(v1::AcquireRequest { request_id, ..call.request.clone() })
            }
            Request::Cancel { target } => Kind::Cancel(v1::CancelRequest {
                request_id,
                target: *target,
                ..Default::default()
            }),
            Request::Release { name, token, .. } => Kind::Release(v1::ReleaseRequest {
                request_id,
                name: name.clone(),
                token: *token,
                ..Default::default()
            }),
            Request::Renew { hold, ttl, .. } => Kind::Renew(v1::RenewRequest {
                request_id,
                name: hold.name.clone(),
                token: hold.token,
                ttl_ms: ttl.map(whole_ms),
                ..Default::default()
            }),
            Request::KeepAlive => {
                Kind::KeepAlive(v1::KeepAliveRequest { request_id, ..Default::default() })
            }
            Request::Close { .. } => {
                Kind::Close(v1::CloseSessionRequest { request_id, ..Default::default() })
            }
        };
        v1::Operation { kind: Some(kind) }
    }

    /// How long the answer may take by the request's own will.
    pub(crate) fn own_wait(&self) -> Duration {
        match self {
            Request::Acquire(call) => Duration::from_millis(call.request.wait_ms),
            _ => Duration::ZERO,
        }
    }

    /// Whether a node that sent it back is to get it again. An acquire whose caller is gone is ended
    /// by its cancel, and a renewal that nobody waits for is not needed. The rest belongs to the
    /// session.
    pub(crate) fn is_worth_retrying(&self) -> bool {
        match self {
            Request::Acquire(call) => !call.is_abandoned(),
            Request::Renew { reply, .. } => !reply.is_closed(),
            Request::Cancel { .. }
            | Request::Release { .. }
            | Request::KeepAlive
            | Request::Close { .. } => true,
        }
    }

    pub(crate) fn note_sent(&self) {
        if let Request::Acquire(call) = self {
            call.was_sent.store(true, Ordering::Relaxed);
        }
    }

    /// Answers of requests that ended with their session. A reply that nobody waits for is dropped.
    pub(crate) fn fail_with_lost_session(self, reason: LossReason) {
        match self {
            Request::Acquire(call) => {
                let _ = call.reply.send(Err(AcquireError::SessionLost(reason)));
            }
            // The end of the session freed the lock.
            Request::Release { reply: Some(reply), .. } => {
                let _ = reply.send(Ok(ReleaseOutcome::Expired));
            }
            Request::Renew { reply, .. } => {
                let _ = reply.send(Err(Lost { reason }.into()));
            }
            Request::Close { reply: Some(reply) } => {
                let _ = reply.send(());
            }
            Request::Release { reply: None, .. }
            | Request::Close { reply: None }
            | Request::Cancel { .. }
            | Request::KeepAlive => {}
        }
    }

    pub(crate) fn reject(self, rejection: Rejection) {
        match self {
            Request::Acquire(call) => {
                let _ = call.reply.send(Err(AcquireError::Rejected(rejection)));
            }
            Request::Release { reply: Some(reply), .. } => {
                let _ = reply.send(Err(rejection));
            }
            Request::Renew { reply, .. } => {
                let _ = reply.send(Err(RenewError::Rejected(rejection)));
            }
            // Refused or not, the client is done with its session.
            Request::Close { reply: Some(reply) } => {
                let _ = reply.send(());
            }
            Request::Release { reply: None, .. }
            | Request::Close { reply: None }
            | Request::Cancel { .. }
            | Request::KeepAlive => {
                tracing::debug!(reason = ?rejection.reason, "refused: {rejection}");
            }
        }
    }
}

impl fmt::Debug for AcquireCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireCall")
            .field("name", &self.request.name)
            .field("is_abandoned", &self.is_abandoned())
            .finish_non_exhaustive()
    }
}

pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
