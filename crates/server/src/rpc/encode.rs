//! From an [`Outcome`] to the wire, the same for unary calls and for the stream.

use holdfast_core::{EndReason, Grant, LogicalTime, Outcome, ReleaseAnswer};
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
}

/// The answer as it travels.
pub(super) fn result(answer: Answer, surroundings: Surroundings<'_>) -> answer::Result {
    match answer.result {
        Ok(outcome) => of_outcome(answer.at, outcome, surroundings),
        Err(reason) => answer::Result::Failure(unavailable(reason, surroundings.membership)),
    }
}

fn of_outcome(at: LogicalTime, outcome: Outcome, around: Surroundings<'_>) -> answer::Result {
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
            };
            if around.resumed {
                answer::Result::Resume(response)
            } else {
                answer::Result::Open(response)
            }
        }
        Outcome::Touched { ttl } => {
            let ttl_ms = ttl.as_ms();
            answer::Result::KeepAlive(v1::KeepAliveResponse { logical_time_ms, ttl_ms })
        }
        Outcome::SessionClosed => {
            answer::Result::Close(v1::CloseSessionResponse { logical_time_ms })
        }
        Outcome::Granted(grant) => {
            acquired(logical_time_ms, v1::acquire_response::Outcome::Granted(of_grant(&grant)))
        }
        Outcome::Busy => {
            acquired(logical_time_ms, v1::acquire_response::Outcome::Busy(v1::Busy {}))
        }
        Outcome::TimedOut => {
            acquired(logical_time_ms, v1::acquire_response::Outcome::TimedOut(v1::TimedOut {}))
        }
        Outcome::Cancelled => {
            acquired(logical_time_ms, v1::acquire_response::Outcome::Cancelled(v1::Cancelled {}))
        }
        Outcome::CancelDone => {
            cancelled(logical_time_ms, v1::cancel_response::Outcome::Cancelled(v1::Cancelled {}))
        }
        Outcome::CancelTooLate(grant) => {
            let grant = of_grant(&grant);
            cancelled(logical_time_ms, v1::cancel_response::Outcome::AlreadyGranted(grant))
        }
        Outcome::CancelNothing => {
            let ended = v1::AlreadyEnded {};
            cancelled(logical_time_ms, v1::cancel_response::Outcome::AlreadyEnded(ended))
        }
        Outcome::Release(answer) => answer::Result::Release(v1::ReleaseResponse {
            logical_time_ms,
            outcome: release_outcome(answer).into(),
        }),
        Outcome::Renewed { deadline, session_deadline } => {
            answer::Result::Renew(v1::RenewResponse {
                logical_time_ms,
                deadline_ms: deadline.map(LogicalTime::as_ms),
                session_deadline_ms: session_deadline.as_ms(),
            })
        }
        Outcome::Rejected(rejection) => answer::Result::Failure(rejected(rejection)),
        Outcome::Queued { .. } | Outcome::Done => {
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

fn of_grant(grant: &Grant) -> v1::Grant {
    let fence = Fence::new(Guarantee::Linearizable, &grant.name, grant.token.0);
    v1::Grant {
        name: grant.name.as_str().to_owned(),
        token: grant.token.0,
        // The lock table gives no token that has no full form.
        fence: fence.map(|fence| fence.to_string()).unwrap_or_default(),
        guarantee: v1::Guarantee::Linearizable.into(),
        deadline_ms: grant.deadline.map(LogicalTime::as_ms),
        session_deadline_ms: grant.session_deadline.as_ms(),
    }
}

fn release_outcome(answer: ReleaseAnswer) -> v1::ReleaseOutcome {
    match answer {
        ReleaseAnswer::Released => v1::ReleaseOutcome::Released,
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
    }
}
