//! The requests of a session: what a program can ask, and how each looks on the wire.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::plain::EncodedClientFrame;
use holdfast_proto::v1;
use holdfast_proto::v1::operation::Kind;

use crate::error::{LossReason, Lost, RequestError};
use crate::hold::{Hold, ReleaseOutcome};
use crate::lease::LocalTime;
use crate::tier::Tier;
use crate::wire_time::whole_ms;

/// What a program asks of its session. Request ids are left at zero.
#[derive(Debug)]
pub enum Request {
    Acquire(v1::AcquireRequest),
    AcquireAll(v1::AcquireAllRequest),
    /// Another mode for a hold.
    Convert {
        hold: Arc<Hold>,
        mode: v1::Mode,
        wait: Duration,
        policy: v1::Policy,
    },
    Release {
        hold: Arc<Hold>,
    },
    /// Starts the hold's own TTL again, with another length if one is given.
    Renew {
        hold: Arc<Hold>,
        ttl: Option<Duration>,
    },
    /// Replaces the metadata of the hold, which `status` shows.
    Proclaim {
        hold: Arc<Hold>,
        metadata: Vec<u8>,
    },
    /// Hands the lock to a session that waits for it.
    Transfer {
        hold: Arc<Hold>,
        to: String,
    },
    /// Reads who holds a lock and who waits for it.
    Status {
        name: String,
    },
}

/// What a request has led to.
#[derive(Debug)]
pub enum Success {
    /// In the order in which the locks were asked for.
    Granted(Vec<Arc<Hold>>),
    Converted,
    Released(ReleaseOutcome),
    Renewed,
    Proclaimed,
    /// With the token under which the other session holds the lock.
    Transferred(u64),
    Status(Box<v1::StatusResponse>),
    Closed,
}

pub type Outcome = Result<Success, RequestError>;

/// A request that has no answer yet.
#[derive(Debug)]
pub(crate) struct PendingRequest<C> {
    pub(crate) operation: Operation,
    /// `None` once no caller waits for the answer.
    pub(crate) caller: Option<Caller<C>>,
    /// Under which the program knows it; 0 if the program does not.
    pub(crate) call: u64,
    /// A cancel goes out, or went out, for it.
    pub(crate) is_abandoned: bool,
}

#[derive(Debug)]
pub(crate) struct Caller<C> {
    pub(crate) caller: C,
    pub(crate) waits_until: LocalTime,
}

/// What goes out in a frame: a request of the program, or one that the session makes by itself.
#[derive(Debug)]
pub(crate) enum Operation {
    OfProgram(Request),
    /// Of an acquire or a convert whose caller is gone.
    Cancel {
        target: u64,
        tier: Tier,
    },
    /// Releases what was granted and has no guard. Without its request id.
    GiveBack(v1::ReleaseRequest),
    Heartbeat,
    Close,
}

impl Request {
    /// The hold that it is about.
    pub(crate) fn hold(&self) -> Option<&Arc<Hold>> {
        match self {
            Request::Convert { hold, .. }
            | Request::Release { hold }
            | Request::Renew { hold, .. }
            | Request::Proclaim { hold, .. }
            | Request::Transfer { hold, .. } => Some(hold),
            Request::Acquire(_) | Request::AcquireAll(_) | Request::Status { .. } => None,
        }
    }

    /// A copy for another try in another group, if it is for new locks: what is about a hold stays with the session that
    /// has the hold.
    pub fn for_other_group(&self, wait: Duration) -> Option<Request> {
        let wait_ms = whole_ms(wait);
        match self {
            Request::Acquire(request) => {
                Some(Request::Acquire(v1::AcquireRequest { wait_ms, ..request.clone() }))
            }
            Request::AcquireAll(request) => {
                Some(Request::AcquireAll(v1::AcquireAllRequest { wait_ms, ..request.clone() }))
            }
            _ => None,
        }
    }

    pub(crate) fn since_ms(&self) -> Option<u64> {
        match self {
            Request::Acquire(request) => request.since_ms,
            Request::AcquireAll(request) => request.since_ms,
            _ => None,
        }
    }

    /// What it comes to if its hold, or its session, has ended.
    pub(crate) fn outcome_if_lost(&self, reason: LossReason) -> Outcome {
        match self {
            Request::Acquire(_) | Request::AcquireAll(_) => Err(RequestError::SessionLost(reason)),
            // The end of the session freed the lock.
            Request::Release { .. } => Ok(Success::Released(ReleaseOutcome::Expired)),
            Request::Status { .. } => Err(RequestError::NotServed),
            Request::Convert { .. }
            | Request::Renew { .. }
            | Request::Proclaim { .. }
            | Request::Transfer { .. } => Err(RequestError::Lost(Lost { reason })),
        }
    }

    fn to_kind(&self, request_id: u64) -> Kind {
        match self {
            Request::Acquire(request) => {
                Kind::Acquire(v1::AcquireRequest { request_id, ..request.clone() })
            }
            Request::AcquireAll(request) => {
                Kind::AcquireAll(v1::AcquireAllRequest { request_id, ..request.clone() })
            }
            Request::Convert { hold, mode, wait, policy } => Kind::Convert(v1::ConvertRequest {
                request_id,
                name: hold.name.clone(),
                token: hold.last_token(),
                acquire_request_id: hold.key.acquire,
                mode: (*mode).into(),
                wait_ms: whole_ms(*wait),
                policy: (*policy).into(),
                tier: hold.tier().to_wire().into(),
                ..Default::default()
            }),
            Request::Release { hold } => {
                Kind::Release(v1::ReleaseRequest { request_id, ..hold.release_request() })
            }
            Request::Renew { hold, ttl } => Kind::Renew(v1::RenewRequest {
                request_id,
                name: hold.name.clone(),
                token: hold.last_token(),
                acquire_request_id: hold.key.acquire,
                ttl_ms: ttl.map(whole_ms),
                tier: hold.tier().to_wire().into(),
                ..Default::default()
            }),
            Request::Proclaim { hold, metadata } => Kind::Proclaim(v1::ProclaimRequest {
                request_id,
                name: hold.name.clone(),
                token: hold.last_token(),
                acquire_request_id: hold.key.acquire,
                metadata: metadata.clone(),
                tier: hold.tier().to_wire().into(),
                ..Default::default()
            }),
            Request::Transfer { hold, to } => Kind::Transfer(v1::TransferRequest {
                request_id,
                name: hold.name.clone(),
                token: hold.last_token(),
                to_public_session_id: to.clone(),
                tier: hold.tier().to_wire().into(),
                ..Default::default()
            }),
            Request::Status { name } => {
                Kind::Status(v1::StatusRequest { name: name.clone(), request_id })
            }
        }
    }
}

impl Operation {
    pub(crate) fn request(&self) -> Option<&Request> {
        match self {
            Operation::OfProgram(request) => Some(request),
            _ => None,
        }
    }

    pub(crate) fn is_acquire(&self) -> bool {
        matches!(self, Operation::OfProgram(Request::Acquire(_) | Request::AcquireAll(_)))
    }

    pub(crate) fn is_status(&self) -> bool {
        matches!(self, Operation::OfProgram(Request::Status { .. }))
    }

    /// The most frequent ones are not copied for it.
    pub(crate) fn write_to(&mut self, frame: &mut EncodedClientFrame, request_id: u64) {
        let kind = match self {
            Operation::OfProgram(Request::Acquire(request)) => {
                request.request_id = request_id;
                return frame.push_acquire(request);
            }
            Operation::OfProgram(Request::Release { hold }) => {
                let request = v1::ReleaseRequest { request_id, ..hold.release_request() };
                return frame.push_release(&request);
            }
            Operation::GiveBack(request) => {
                request.request_id = request_id;
                return frame.push_release(request);
            }
            Operation::OfProgram(request) => request.to_kind(request_id),
            Operation::Cancel { target, tier } => Kind::Cancel(v1::CancelRequest {
                request_id,
                target: *target,
                tier: tier.to_wire().into(),
                ..Default::default()
            }),
            Operation::Heartbeat => {
                Kind::KeepAlive(v1::KeepAliveRequest { request_id, ..Default::default() })
            }
            Operation::Close => {
                Kind::Close(v1::CloseSessionRequest { request_id, ..Default::default() })
            }
        };
        frame.push(&v1::Operation { kind: Some(kind) });
    }

    /// Which tier answers it. What is about the session alone belongs to the replicated lock table.
    pub(crate) fn tier(&self) -> Tier {
        match self {
            Operation::OfProgram(Request::Acquire(request)) => Tier::from_wire(request.tier()),
            Operation::OfProgram(Request::AcquireAll(request)) => Tier::from_wire(request.tier()),
            Operation::OfProgram(request) => {
                request.hold().map_or(Tier::Correctness, |hold| hold.tier())
            }
            Operation::Cancel { tier, .. } => *tier,
            Operation::GiveBack(request) => Tier::from_wire(request.tier()),
            Operation::Heartbeat | Operation::Close => Tier::Correctness,
        }
    }

    /// Whether it may be queued or change a hold, so that a cancel ends it.
    pub(crate) fn can_be_cancelled(&self) -> bool {
        self.is_acquire() || matches!(self, Operation::OfProgram(Request::Convert { .. }))
    }

    /// How many names it carries: by these the size of a frame is bounded.
    pub(crate) fn name_count(&self) -> usize {
        match self {
            Operation::OfProgram(Request::AcquireAll(request)) => request.members.len().max(1),
            _ => 1,
        }
    }

    /// How long the answer may take because the request is to wait.
    pub(crate) fn own_wait(&self) -> Duration {
        match self {
            Operation::OfProgram(Request::Acquire(request)) => {
                Duration::from_millis(request.wait_ms)
            }
            Operation::OfProgram(Request::AcquireAll(request)) => {
                Duration::from_millis(request.wait_ms)
            }
            Operation::OfProgram(Request::Convert { wait, .. }) => *wait,
            _ => Duration::ZERO,
        }
    }
}

impl<C> PendingRequest<C> {
    /// A request that the session makes by itself.
    pub(crate) fn own(operation: Operation) -> PendingRequest<C> {
        PendingRequest { operation, caller: None, call: 0, is_abandoned: false }
    }

    /// Whether a node that sent it back is to get it again. What can wait and whose caller is gone is ended by its
    /// cancel, and a renewal that no caller waits for is not needed. The rest belongs to the session.
    pub(crate) fn is_worth_retrying(&self) -> bool {
        match &self.operation {
            Operation::OfProgram(
                Request::Acquire(_) | Request::AcquireAll(_) | Request::Convert { .. },
            ) => !self.is_abandoned,
            Operation::OfProgram(
                Request::Renew { .. } | Request::Proclaim { .. } | Request::Status { .. },
            ) => self.caller.is_some(),
            _ => true,
        }
    }
}
