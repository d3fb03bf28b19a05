//! From an [`Outcome`] to the wire, the same for unary calls and for streams. What reads show is in [`read`].

use holdfast_core::command::Mode;
use holdfast_core::{
    CycleLink, EndReason, Grant, LogicalTime, Outcome, PublicSessionId, ReleaseAnswer, Span,
};

use crate::failure::{rejected, rejected_in_efficiency_tier};
use crate::plain::BorrowedGrant;
use crate::v1::{self, answer};
use crate::{Fence, Guarantee};

pub mod access;
pub mod read;

/// An outcome as the answer to its caller. None for an outcome that is no answer of its own: a session that was opened
/// ([`session_open`]), and outcomes for which no client waits.
pub fn outcome(at: LogicalTime, outcome: &Outcome, guarantee: Guarantee) -> Option<answer::Result> {
    use v1::acquire_response::Outcome as Acquired;
    use v1::cancel_response::Outcome as CancelAnswer;
    let logical_time_ms = at.as_ms();
    let acquired = |outcome| {
        answer::Result::Acquire(v1::AcquireResponse { logical_time_ms, outcome: Some(outcome) })
    };
    let cancelled = |outcome| {
        answer::Result::Cancel(v1::CancelResponse { logical_time_ms, outcome: Some(outcome) })
    };
    Some(match outcome {
        Outcome::Touched { ttl, .. } => touched(at, *ttl),
        Outcome::SessionClosed => {
            answer::Result::Close(v1::CloseSessionResponse { logical_time_ms })
        }
        Outcome::Granted(granted) => acquired(Acquired::Granted(grant(granted, guarantee).into())),
        Outcome::Busy => acquired(Acquired::Busy(v1::Busy {})),
        Outcome::TimedOut => acquired(Acquired::TimedOut(v1::TimedOut {})),
        Outcome::Cancelled => acquired(Acquired::Cancelled(v1::Cancelled {})),
        Outcome::Deadlock(cycle) => acquired(Acquired::Deadlock(deadlock(cycle))),
        Outcome::Died { since } => acquired(Acquired::Died(v1::Died { since_ms: since.as_ms() })),
        Outcome::GrantedAll(all) => acquired(Acquired::AllGranted(grants(all, guarantee))),
        Outcome::CancelDone => cancelled(CancelAnswer::Cancelled(v1::Cancelled {})),
        Outcome::CancelTooLate(all) => cancelled(match &**all {
            [only] => CancelAnswer::AlreadyGranted(grant(only, guarantee).into()),
            all => CancelAnswer::AllAlreadyGranted(grants(all, guarantee)),
        }),
        Outcome::CancelNothing => cancelled(CancelAnswer::AlreadyEnded(v1::AlreadyEnded {})),
        Outcome::Release(answer) => answer::Result::Release(released(at, *answer)),
        Outcome::Proclaimed => answer::Result::Proclaim(v1::ProclaimResponse { logical_time_ms }),
        Outcome::Transferred { token } => {
            answer::Result::Transfer(v1::TransferResponse { logical_time_ms, token: token.0 })
        }
        Outcome::Renewed { deadline, session_deadline } => {
            answer::Result::Renew(v1::RenewResponse {
                logical_time_ms,
                deadline_ms: deadline.map(LogicalTime::as_ms),
                session_deadline_ms: session_deadline_ms(*session_deadline, guarantee),
            })
        }
        Outcome::Rejected(rejection) => answer::Result::Failure(match guarantee {
            Guarantee::Linearizable => rejected(*rejection),
            Guarantee::BestEffort => rejected_in_efficiency_tier(*rejection),
        }),
        Outcome::SessionOpen { .. }
        | Outcome::Queued { .. }
        | Outcome::Done
        | Outcome::Published(_)
        | Outcome::AccessChanged { .. }
        | Outcome::Intervened(_) => return None,
    })
}

/// What the answer to an open or a resume tells besides the session's terms.
#[derive(Debug)]
pub struct OpenContext {
    /// The client addresses of all members.
    pub endpoints: Vec<String>,
    /// The client address of the leader.
    pub leader: String,
    pub term: u64,
    /// Of a cluster with several groups.
    pub map: Option<v1::GroupMap>,
    /// The answer to a resume differs from that to an open in its name only.
    pub resumed: bool,
}

pub fn session_open(
    at: LogicalTime,
    public: PublicSessionId,
    ttl: Span,
    linger: Span,
    context: OpenContext,
) -> answer::Result {
    let OpenContext { endpoints, leader, term, map, resumed } = context;
    let response = v1::OpenSessionResponse {
        public_id: public.to_string(),
        ttl_ms: ttl.as_ms(),
        linger_ms: linger.as_ms(),
        logical_time_ms: at.as_ms(),
        endpoints,
        leader,
        term,
        map,
    };
    if resumed { answer::Result::Resume(response) } else { answer::Result::Open(response) }
}

fn grants(all: &[Grant], guarantee: Guarantee) -> v1::Grants {
    v1::Grants { grants: all.iter().map(|one| grant(one, guarantee).into()).collect() }
}

pub fn deadlock(cycle: &[CycleLink]) -> v1::Deadlock {
    let link = |link: &CycleLink| v1::CycleLink {
        public_session_id: link.session.to_string(),
        actor: link.actor.0,
        waits_for: link.waits_for.as_str().to_owned(),
    };
    v1::Deadlock { cycle: cycle.iter().map(link).collect() }
}

pub fn mode(mode: Mode) -> v1::Mode {
    match mode {
        Mode::Exclusive => v1::Mode::Exclusive,
        Mode::Shared => v1::Mode::Shared,
        Mode::Permit { .. } => v1::Mode::Permit,
    }
}

pub fn permits(mode: Mode) -> u32 {
    match mode {
        Mode::Permit { limit } => limit,
        Mode::Exclusive | Mode::Shared => 0,
    }
}

pub fn grant(grant: &Grant, guarantee: Guarantee) -> BorrowedGrant<'_> {
    BorrowedGrant {
        name: grant.name.as_str(),
        token: grant.token.0,
        // Permits apart, the lock table gives no token that has no full form.
        fence: match grant.mode {
            Mode::Permit { .. } => None,
            Mode::Exclusive | Mode::Shared => Fence::new(guarantee, &grant.name, grant.token.0),
        },
        guarantee: on_wire(guarantee),
        deadline_ms: grant.deadline.map(LogicalTime::as_ms),
        session_deadline_ms: session_deadline_ms(grant.session_deadline, guarantee),
        mode: mode(grant.mode),
        acquire_request_id: grant.acquire.0,
    }
}

pub fn touched(at: LogicalTime, ttl: Span) -> answer::Result {
    let (logical_time_ms, ttl_ms) = (at.as_ms(), ttl.as_ms());
    answer::Result::KeepAlive(v1::KeepAliveResponse { logical_time_ms, ttl_ms })
}

pub fn released(at: LogicalTime, answer: ReleaseAnswer) -> v1::ReleaseResponse {
    v1::ReleaseResponse {
        logical_time_ms: at.as_ms(),
        outcome: release_outcome(answer).into(),
        remaining: match answer {
            ReleaseAnswer::StillHeld { remaining } => remaining,
            _ => 0,
        },
    }
}

pub fn on_wire(guarantee: Guarantee) -> v1::Guarantee {
    match guarantee {
        Guarantee::Linearizable => v1::Guarantee::Linearizable,
        Guarantee::BestEffort => v1::Guarantee::BestEffort,
    }
}

/// Sessions belong to the replicated table; the efficiency tier knows nothing of their time.
fn session_deadline_ms(deadline: LogicalTime, guarantee: Guarantee) -> u64 {
    match guarantee {
        Guarantee::Linearizable => deadline.as_ms(),
        Guarantee::BestEffort => 0,
    }
}

fn release_outcome(answer: ReleaseAnswer) -> v1::ReleaseOutcome {
    match answer {
        ReleaseAnswer::Released | ReleaseAnswer::StillHeld { .. } => v1::ReleaseOutcome::Released,
        ReleaseAnswer::NotOwner => v1::ReleaseOutcome::NotOwner,
        ReleaseAnswer::AlreadyReleased => v1::ReleaseOutcome::AlreadyReleased,
        ReleaseAnswer::Expired => v1::ReleaseOutcome::Expired,
    }
}

/// A hold whose session expired ended by a TTL too: the session's.
pub fn end_reason(reason: EndReason) -> v1::EndReason {
    match reason {
        EndReason::Ttl | EndReason::SessionExpired => v1::EndReason::Ttl,
        EndReason::MaxHold => v1::EndReason::MaxHold,
        EndReason::Closed => v1::EndReason::Closed,
        EndReason::Disconnected => v1::EndReason::Disconnected,
        EndReason::Wounded => v1::EndReason::Wounded,
        EndReason::Broken => v1::EndReason::Broken,
        EndReason::Killed => v1::EndReason::Killed,
        EndReason::Transferred => v1::EndReason::Transferred,
        // No reason of its own yet: no server proposes a move of slots. The client takes the hold for ended.
        EndReason::Moved => v1::EndReason::Unspecified,
    }
}
