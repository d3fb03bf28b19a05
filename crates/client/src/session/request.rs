//! The requests of a session: how each looks on the wire, and who waits for its answer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_proto::v1;
use holdfast_proto::v1::operation::Kind;
use tokio::sync::oneshot;

use super::convert::ConvertCall;
use super::frame::{self, Frame};
use super::reply::{Awaited, Reply, reply_until};
use super::{Handle, ReleaseReply, StatusReply, Ticket};
use crate::error::{
    AcquireError, ConvertError, LossReason, Lost, ProclaimError, Rejection, RenewError,
    TransferError,
};
use crate::guard::{Guard, ReleaseOutcome};
use crate::hold::Hold;
use crate::limits::{check_metadata, check_name, check_names};
use crate::tier::Tier;

#[derive(Debug)]
pub(crate) enum Request {
    Acquire(Box<AcquireCall>),
    Convert(ConvertCall),
    /// Of an acquire or a convert whose caller is gone.
    Cancel {
        target: u64,
        tier: Tier,
    },
    Release {
        /// Without its request id.
        request: v1::ReleaseRequest,
        reply: Option<ReleaseReply>,
    },
    Renew {
        hold: Arc<Hold>,
        ttl: Option<Duration>,
        reply: oneshot::Sender<Result<(), RenewError>>,
    },
    Proclaim {
        hold: Arc<Hold>,
        metadata: Vec<u8>,
        reply: oneshot::Sender<Result<(), ProclaimError>>,
    },
    Transfer {
        hold: Arc<Hold>,
        to: String,
        reply: oneshot::Sender<Result<u64, TransferError>>,
    },
    Status {
        name: String,
        reply: StatusReply,
    },
    KeepAlive,
    Close {
        reply: Option<oneshot::Sender<()>>,
    },
}

/// What an acquire asks for. Without its request id.
#[derive(Debug)]
pub(crate) enum Wanted {
    One(v1::AcquireRequest),
    All(v1::AcquireAllRequest),
}

impl Wanted {
    fn to_kind(&self, request_id: u64) -> Kind {
        match self {
            Wanted::One(request) => {
                Kind::Acquire(v1::AcquireRequest { request_id, ..request.clone() })
            }
            Wanted::All(request) => {
                Kind::AcquireAll(v1::AcquireAllRequest { request_id, ..request.clone() })
            }
        }
    }

    /// Whether a node could take it at all.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        match self {
            Wanted::One(request) => {
                check_name(&request.name)?;
                check_metadata(&request.metadata)
            }
            Wanted::All(request) => {
                check_names(request.members.iter().map(|member| member.name.as_str()))?;
                check_metadata(&request.metadata)
            }
        }
    }

    /// For those who look at traces.
    pub(crate) fn names_in_words(&self) -> String {
        match self {
            Wanted::One(request) => request.name.clone(),
            Wanted::All(request) => {
                let names: Vec<_> = request.members.iter().map(|member| &*member.name).collect();
                names.join(", ")
            }
        }
    }

    /// Unless the caller has said so before.
    pub(crate) fn set_traceparent(&mut self, traceparent: String) {
        let (Wanted::One(v1::AcquireRequest { traceparent: known, .. })
        | Wanted::All(v1::AcquireAllRequest { traceparent: known, .. })) = self;
        if known.is_empty() {
            *known = traceparent;
        }
    }

    pub(crate) fn wait_ms(&self) -> u64 {
        match self {
            Wanted::One(request) => request.wait_ms,
            Wanted::All(request) => request.wait_ms,
        }
    }

    fn tier(&self) -> Tier {
        Tier::from_wire(match self {
            Wanted::One(request) => request.tier(),
            Wanted::All(request) => request.tier(),
        })
    }

    pub(crate) fn since_ms(&self) -> Option<u64> {
        match self {
            Wanted::One(request) => request.since_ms,
            Wanted::All(request) => request.since_ms,
        }
    }
}

/// One call of `acquire`.
pub(crate) struct AcquireCall {
    pub(crate) wanted: Wanted,
    pub(crate) ticket: Ticket,
    /// Dropping the guards in it releases the locks, so a grant that finds no caller is not kept.
    pub(crate) reply: Reply<Granted>,
    pub(crate) on_queued: Option<Box<dyn FnOnce(u64) + Send>>,
    /// For the guard; `None` once the caller is gone, so that the call alone does not keep the task
    /// alive.
    pub(crate) handle: Option<Handle>,
}

/// In the order in which the locks were asked for.
pub(crate) type Granted = Result<Vec<Guard>, AcquireError>;

impl AcquireCall {
    pub(crate) fn new(
        handle: &Handle,
        wanted: Wanted,
        wait: Duration,
        on_queued: Option<Box<dyn FnOnce(u64) + Send>>,
    ) -> (Box<AcquireCall>, Awaited<Granted>) {
        let (reply, answer) = reply_until(handle.patience_until(wait));
        let (ticket, handle) = (Ticket::default(), Some(handle.clone()));
        (Box::new(AcquireCall { wanted, ticket, reply, on_queued, handle }), answer)
    }

    pub(crate) fn wants_lock_delay(&self) -> bool {
        let delay_ms = match &self.wanted {
            Wanted::One(request) => request.lock_delay_ms,
            Wanted::All(request) => request.lock_delay_ms,
        };
        delay_ms.is_some_and(|ms| ms > 0)
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.handle.is_none()
    }
}

impl Request {
    /// The most frequent ones are not copied for it.
    pub(super) fn write_to(&mut self, frame: &mut Frame, request_id: u64) {
        if let Request::Acquire(call) = self
            && let Wanted::One(request) = &mut call.wanted
        {
            request.request_id = request_id;
            frame.push_kind(frame::ACQUIRE, request);
        } else if let Request::Release { request, .. } = self {
            request.request_id = request_id;
            frame.push_kind(frame::RELEASE, request);
        } else {
            frame.push(&self.to_operation(request_id));
        }
    }

    pub(crate) fn to_operation(&self, request_id: u64) -> v1::Operation {
        let kind = match self {
            Request::Acquire(call) => call.wanted.to_kind(request_id),
            Request::Convert(call) => Kind::Convert(call.to_wire(request_id)),
            Request::Cancel { target, tier } => Kind::Cancel(v1::CancelRequest {
                request_id,
                target: *target,
                tier: tier.to_wire().into(),
                ..Default::default()
            }),
            Request::Release { request, .. } => {
                Kind::Release(v1::ReleaseRequest { request_id, ..request.clone() })
            }
            Request::Renew { hold, ttl, .. } => Kind::Renew(v1::RenewRequest {
                request_id,
                name: hold.name.clone(),
                token: hold.token(),
                acquire_request_id: hold.key.acquire,
                ttl_ms: ttl.map(whole_ms),
                tier: hold.tier().to_wire().into(),
                ..Default::default()
            }),
            Request::Proclaim { hold, metadata, .. } => Kind::Proclaim(v1::ProclaimRequest {
                request_id,
                name: hold.name.clone(),
                token: hold.token(),
                acquire_request_id: hold.key.acquire,
                metadata: metadata.clone(),
                tier: hold.tier().to_wire().into(),
                ..Default::default()
            }),
            Request::Transfer { hold, to, .. } => Kind::Transfer(v1::TransferRequest {
                request_id,
                name: hold.name.clone(),
                token: hold.token(),
                to_public_session_id: to.clone(),
                tier: hold.tier().to_wire().into(),
                ..Default::default()
            }),
            Request::Status { name, .. } => {
                Kind::Status(v1::StatusRequest { name: name.clone(), request_id })
            }
            Request::KeepAlive => {
                Kind::KeepAlive(v1::KeepAliveRequest { request_id, ..Default::default() })
            }
            Request::Close { .. } => {
                Kind::Close(v1::CloseSessionRequest { request_id, ..Default::default() })
            }
        };
        v1::Operation { kind: Some(kind) }
    }

    /// Which tier answers it. What is about the session alone belongs to the replicated lock table.
    pub(crate) fn tier(&self) -> Tier {
        match self {
            Request::Acquire(call) => call.wanted.tier(),
            Request::Convert(call) => call.hold.tier(),
            Request::Cancel { tier, .. } => *tier,
            Request::Release { request, .. } => Tier::from_wire(request.tier()),
            Request::Renew { hold, .. }
            | Request::Proclaim { hold, .. }
            | Request::Transfer { hold, .. } => hold.tier(),
            Request::Status { .. } | Request::KeepAlive | Request::Close { .. } => {
                Tier::Correctness
            }
        }
    }

    /// How many names it carries: by these the size of a frame is bounded.
    pub(crate) fn name_count(&self) -> usize {
        match self {
            Request::Acquire(call) => match &call.wanted {
                Wanted::One(_) => 1,
                Wanted::All(request) => request.members.len().max(1),
            },
            _ => 1,
        }
    }

    /// How long the answer may take by the request's own will.
    pub(crate) fn own_wait(&self) -> Duration {
        match self {
            Request::Acquire(call) => Duration::from_millis(call.wanted.wait_ms()),
            Request::Convert(call) => Duration::from_millis(call.wait_ms),
            _ => Duration::ZERO,
        }
    }

    /// Whether a node that sent it back is to get it again. What can wait and whose caller is gone is
    /// ended by its cancel, and a renewal that nobody waits for is not needed. The rest belongs to the
    /// session.
    pub(crate) fn is_worth_retrying(&self) -> bool {
        match self {
            Request::Acquire(_) | Request::Convert(_) => !self.is_abandoned(),
            Request::Renew { reply, .. } => !reply.is_closed(),
            Request::Proclaim { reply, .. } => !reply.is_closed(),
            Request::Status { reply, .. } => !reply.is_closed(),
            Request::Cancel { .. }
            | Request::Transfer { .. }
            | Request::Release { .. }
            | Request::KeepAlive
            | Request::Close { .. } => true,
        }
    }

    /// The caller of an acquire or a convert is gone: a cancel goes out for it.
    pub(crate) fn abandon(&mut self) {
        match self {
            Request::Acquire(call) => call.handle = None,
            Request::Convert(call) => call.is_abandoned = true,
            _ => {}
        }
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Request::Acquire(call) => call.is_abandoned(),
            Request::Convert(call) => call.is_abandoned,
            _ => false,
        }
    }

    /// Lets a caller go whose time is over. Returns until when it is waiting, otherwise; those who look at the clock
    /// themselves do not count.
    pub(crate) fn let_go_if_over(&mut self, now: Instant) -> Option<Instant> {
        match self {
            Request::Acquire(call) => call.reply.let_go_if_over(now),
            Request::Release { reply, .. } => reply.as_mut()?.let_go_if_over(now),
            _ => None,
        }
    }

    /// For what can be abandoned.
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        match self {
            Request::Acquire(call) => Some(&call.ticket),
            Request::Convert(call) => Some(&call.ticket),
            _ => None,
        }
    }

    /// Answers of requests that ended with their session. A reply that nobody waits for is dropped.
    pub(crate) fn fail_with_lost_session(self, reason: LossReason) {
        match self {
            Request::Acquire(call) => {
                call.reply.send(Err(AcquireError::SessionLost(reason)));
            }
            // The end of the session freed the lock.
            Request::Release { reply: Some(reply), .. } => {
                reply.send(Ok(ReleaseOutcome::Expired));
            }
            Request::Convert(call) => {
                let _ = call.reply.send(Err(Lost { reason }.into()));
            }
            Request::Renew { reply, .. } => {
                let _ = reply.send(Err(Lost { reason }.into()));
            }
            Request::Proclaim { reply, .. } => {
                let _ = reply.send(Err(Lost { reason }.into()));
            }
            Request::Transfer { reply, .. } => {
                let _ = reply.send(Err(Lost { reason }.into()));
            }
            Request::Close { reply: Some(reply) } => {
                let _ = reply.send(());
            }
            // Whoever asked can ask without a session.
            Request::Status { .. }
            | Request::Release { reply: None, .. }
            | Request::Close { reply: None }
            | Request::Cancel { .. }
            | Request::KeepAlive => {}
        }
    }

    pub(crate) fn reject(self, rejection: Rejection) {
        match self {
            Request::Acquire(call) => call.reply.send(Err(AcquireError::Rejected(rejection))),
            Request::Release { reply: Some(reply), .. } => reply.send(Err(rejection)),
            Request::Convert(call) => {
                let _ = call.reply.send(Err(ConvertError::Rejected(rejection)));
            }
            Request::Renew { reply, .. } => {
                let _ = reply.send(Err(RenewError::Rejected(rejection)));
            }
            Request::Proclaim { reply, .. } => {
                let _ = reply.send(Err(ProclaimError::Rejected(rejection)));
            }
            Request::Transfer { hold, reply, .. } => {
                // If it may have been done, the guard stays without a token.
                hold.set_leaving(rejection.may_have_happened);
                let _ = reply.send(Err(TransferError::Rejected(rejection)));
            }
            Request::Status { reply, .. } => {
                let _ = reply.send(Err(rejection));
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
            .field("wanted", &self.wanted)
            .field("is_abandoned", &self.is_abandoned())
            .finish_non_exhaustive()
    }
}

pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
