//! From an [`Outcome`] to the wire, the same for unary calls and for the stream.

use holdfast_core::command::Mode;
use holdfast_core::{CycleLink, EndReason, Grant, LogicalTime, Outcome, ReleaseAnswer, Span};
use holdfast_proto::plain::BorrowedGrant;
use holdfast_proto::v1::{self, answer};
use holdfast_proto::{Fence, Guarantee};

use super::failure::{bug, rejected, unavailable};
use crate::driver::Answer;
use crate::membership::Membership;

/// What an answer tells beyond the outcome itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) membership: &'a Membership,
    /// The answer to a resume differs from that to an open in its name only.
    pub(super) resumed: bool,
    /// In which this node leads.
    pub(super) term: u64,
    /// Of the tier that answers.
    pub(super) guarantee: Guarantee,
}

/// The answer as it travels.
pub(super) fn result(answer: &Answer, surroundings: Surroundings<'_>) -> answer::Result {
    match &answer.result {
        Ok(outcome) => of_outcome(answer.at, outcome, surroundings),
        Err(reason) => answer::Result::Failure(unavailable(*reason, surroundings.membership)),
    }
}

fn of_outcome(at: LogicalTime, outcome: &Outcome, around: Surroundings<'_>) -> answer::Result {
    let logical_time_ms = at.as_ms();
    match outcome {
        Outcome::SessionOpen { public, ttl, linger } => {
            let membership = around.membership;
            let response = v1::OpenSessionResponse {
                public_id: public.to_string(),
                ttl_ms: ttl.as_ms(),
                linger_ms: linger.as_ms(),
                logical_time_ms,
                endpoints: membership.client_addresses(),
                // Only a leader answers.
                leader: membership.client_address(Some(membership.me)),
                term: around.term,
            };
            if around.resumed {
                answer::Result::Resume(response)
            } else {
                answer::Result::Open(response)
            }
        }
        Outcome::Touched { ttl } => touched(at, *ttl),
        Outcome::SessionClosed => {
            answer::Result::Close(v1::CloseSessionResponse { logical_time_ms })
        }
        Outcome::Granted(granted) => acquired(
            logical_time_ms,
            v1::acquire_response::Outcome::Granted(grant(granted, around.guarantee).into()),
        ),
        Outcome::Busy => {
            acquired(logical_time_ms, v1::acquire_response::Outcome::Busy(v1::Busy {}))
        }
        Outcome::TimedOut => {
            acquired(logical_time_ms, v1::acquire_response::Outcome::TimedOut(v1::TimedOut {}))
        }
        Outcome::Cancelled => {
            acquired(logical_time_ms, v1::acquire_response::Outcome::Cancelled(v1::Cancelled {}))
        }
        Outcome::Deadlock(cycle) => {
            let deadlock = v1::acquire_response::Outcome::Deadlock(deadlock(cycle));
            acquired(logical_time_ms, deadlock)
        }
        Outcome::Died { since } => {
            let died = v1::Died { since_ms: since.as_ms() };
            acquired(logical_time_ms, v1::acquire_response::Outcome::Died(died))
        }
        Outcome::GrantedAll(all) => acquired(
            logical_time_ms,
            v1::acquire_response::Outcome::AllGranted(grants(all, around.guarantee)),
        ),
        Outcome::CancelDone => {
            cancelled(logical_time_ms, v1::cancel_response::Outcome::Cancelled(v1::Cancelled {}))
        }
        Outcome::CancelTooLate(all) => {
            let outcome = match &**all {
                [only] => v1::cancel_response::Outcome::AlreadyGranted(
                    grant(only, around.guarantee).into(),
                ),
                all => {
                    v1::cancel_response::Outcome::AllAlreadyGranted(grants(all, around.guarantee))
                }
            };
            cancelled(logical_time_ms, outcome)
        }
        Outcome::CancelNothing => {
            let ended = v1::AlreadyEnded {};
            cancelled(logical_time_ms, v1::cancel_response::Outcome::AlreadyEnded(ended))
        }
        Outcome::Release(answer) => answer::Result::Release(released(at, *answer)),
        Outcome::Proclaimed => answer::Result::Proclaim(v1::ProclaimResponse { logical_time_ms }),
        Outcome::Transferred { token } => {
            let token = token.0;
            answer::Result::Transfer(v1::TransferResponse { logical_time_ms, token })
        }
        Outcome::Renewed { deadline, session_deadline } => {
            answer::Result::Renew(v1::RenewResponse {
                logical_time_ms,
                deadline_ms: deadline.map(LogicalTime::as_ms),
                session_deadline_ms: session_deadline_ms(*session_deadline, around.guarantee),
            })
        }
        Outcome::Rejected(rejection) => answer::Result::Failure(rejected(*rejection)),
        Outcome::Queued { .. } | Outcome::Done | Outcome::Published(_) | Outcome::Intervened(_) => {
            answer::Result::Failure(bug("an outcome that nobody waits for was given as an answer"))
        }
    }
}

fn acquired(logical_time_ms: u64, outcome: v1::acquire_response::Outcome) -> answer::Result {
    answer::Result::Acquire(v1::AcquireResponse { logical_time_ms, outcome: Some(outcome) })
}

fn cancelled(logical_time_ms: u64, outcome: v1::cancel_response::Outcome) -> answer::Result {
    answer::Result::Cancel(v1::CancelResponse { logical_time_ms, outcome: Some(outcome) })
}

fn grants(all: &[Grant], guarantee: Guarantee) -> v1::Grants {
    v1::Grants { grants: all.iter().map(|one| grant(one, guarantee).into()).collect() }
}

pub(super) fn deadlock(cycle: &[CycleLink]) -> v1::Deadlock {
    let link = |link: &CycleLink| v1::CycleLink {
        public_session_id: link.session.to_string(),
        actor: link.actor.0,
        waits_for: link.waits_for.as_str().to_owned(),
    };
    v1::Deadlock { cycle: cycle.iter().map(link).collect() }
}

pub(super) fn mode(mode: Mode) -> v1::Mode {
    match mode {
        Mode::Exclusive => v1::Mode::Exclusive,
        Mode::Shared => v1::Mode::Shared,
        Mode::Permit { .. } => v1::Mode::Permit,
    }
}

pub(super) fn permits(mode: Mode) -> u32 {
    match mode {
        Mode::Permit { limit } => limit,
        Mode::Exclusive | Mode::Shared => 0,
    }
}

pub(super) fn grant(grant: &Grant, guarantee: Guarantee) -> BorrowedGrant<'_> {
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

pub(super) fn touched(at: LogicalTime, ttl: Span) -> answer::Result {
    let (logical_time_ms, ttl_ms) = (at.as_ms(), ttl.as_ms());
    answer::Result::KeepAlive(v1::KeepAliveResponse { logical_time_ms, ttl_ms })
}

pub(super) fn released(at: LogicalTime, answer: ReleaseAnswer) -> v1::ReleaseResponse {
    v1::ReleaseResponse {
        logical_time_ms: at.as_ms(),
        outcome: release_outcome(answer).into(),
        remaining: match answer {
            ReleaseAnswer::StillHeld { remaining } => remaining,
            _ => 0,
        },
    }
}

pub(super) fn on_wire(guarantee: Guarantee) -> v1::Guarantee {
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
pub(super) fn end_reason(reason: EndReason) -> v1::EndReason {
    match reason {
        EndReason::Ttl | EndReason::SessionExpired => v1::EndReason::Ttl,
        EndReason::MaxHold => v1::EndReason::MaxHold,
        EndReason::Closed => v1::EndReason::Closed,
        EndReason::Disconnected => v1::EndReason::Disconnected,
        EndReason::Wounded => v1::EndReason::Wounded,
        EndReason::Broken => v1::EndReason::Broken,
        EndReason::Killed => v1::EndReason::Killed,
        EndReason::Transferred => v1::EndReason::Transferred,
    }
}
