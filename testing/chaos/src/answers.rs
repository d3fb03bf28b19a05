//! What nodes say on the wire, in the words of the lock table.

use holdfast_core::command::Mode;
use holdfast_core::{FenceToken, LockName, LogicalTime, PublicSessionId, RequestId, Span};
use holdfast_core::{Grant, Outcome, Rejection, ReleaseAnswer};
use holdfast_proto::v1::{self, Reason, acquire_response, cancel_response};

/// None: an answer that this version does not know.
pub(crate) type Known = Option<Outcome>;

pub(crate) fn opened(answer: &v1::OpenSessionResponse) -> Known {
    Some(Outcome::SessionOpen {
        public: PublicSessionId(u64::from_str_radix(&answer.public_id, 16).ok()?),
        ttl: Span::from_ms(answer.ttl_ms),
        linger: Span::from_ms(answer.linger_ms),
        departures: None,
    })
}

pub(crate) fn kept_alive(answer: &v1::KeepAliveResponse) -> Known {
    Some(Outcome::Touched { ttl: Span::from_ms(answer.ttl_ms), departures: None })
}

pub(crate) fn acquired(answer: v1::AcquireResponse) -> Known {
    match answer.outcome? {
        acquire_response::Outcome::Granted(grant) => granted(grant).map(Outcome::Granted),
        acquire_response::Outcome::Busy(_) => Some(Outcome::Busy),
        acquire_response::Outcome::TimedOut(_) => Some(Outcome::TimedOut),
        acquire_response::Outcome::Cancelled(_) => Some(Outcome::Cancelled),
        acquire_response::Outcome::AllGranted(all) => {
            let grants: Option<Box<[Grant]>> = all.grants.into_iter().map(granted).collect();
            grants.map(Outcome::GrantedAll)
        }
        // No caller here asks in a way that could be answered so.
        acquire_response::Outcome::Deadlock(_) | acquire_response::Outcome::Died(_) => None,
    }
}

pub(crate) fn cancelled(answer: v1::CancelResponse) -> Known {
    match answer.outcome? {
        cancel_response::Outcome::Cancelled(_) => Some(Outcome::CancelDone),
        cancel_response::Outcome::AlreadyGranted(grant) => {
            granted(grant).map(|grant| Outcome::CancelTooLate([grant].into()))
        }
        cancel_response::Outcome::AllAlreadyGranted(all) => {
            let grants: Option<Box<[Grant]>> = all.grants.into_iter().map(granted).collect();
            grants.map(Outcome::CancelTooLate)
        }
        cancel_response::Outcome::AlreadyEnded(_) => Some(Outcome::CancelNothing),
    }
}

pub(crate) fn released(answer: &v1::ReleaseResponse) -> Known {
    let answer = match answer.outcome() {
        v1::ReleaseOutcome::Unspecified => return None,
        v1::ReleaseOutcome::Released => ReleaseAnswer::Released,
        v1::ReleaseOutcome::NotOwner => ReleaseAnswer::NotOwner,
        v1::ReleaseOutcome::AlreadyReleased => ReleaseAnswer::AlreadyReleased,
        v1::ReleaseOutcome::Expired => ReleaseAnswer::Expired,
    };
    Some(Outcome::Release(answer))
}

pub(crate) fn renewed(answer: &v1::RenewResponse) -> Known {
    Some(Outcome::Renewed {
        deadline: answer.deadline_ms.map(LogicalTime::from_ms),
        session_deadline: LogicalTime::from_ms(answer.session_deadline_ms),
    })
}

fn granted(grant: v1::Grant) -> Option<Grant> {
    Some(Grant {
        name: LockName::new(&grant.name).ok()?,
        acquire: RequestId(grant.acquire_request_id),
        token: FenceToken(grant.token),
        mode: Mode::Exclusive,
        deadline: grant.deadline_ms.map(LogicalTime::from_ms),
        session_deadline: LogicalTime::from_ms(grant.session_deadline_ms),
    })
}

/// The lock table's own refusals. None: it was the node that refused, and the table was not asked.
pub(crate) fn rejected(reason: Reason) -> Option<Rejection> {
    Some(match reason {
        Reason::UnknownSession => Rejection::UnknownSession,
        Reason::SessionExists => Rejection::SessionExists,
        Reason::NotHeld => Rejection::NotHeld,
        Reason::TooManySessions => Rejection::TooManySessions,
        Reason::TooManyHolds => Rejection::TooManyHolds,
        Reason::TooManyWaits => Rejection::TooManyWaits,
        Reason::QueueFull => Rejection::QueueFull,
        Reason::TooManyUnacknowledged => Rejection::TooManyUnacknowledged,
        Reason::AnswerDiscarded => Rejection::AnswerDiscarded,
        Reason::RequestIdReused => Rejection::RequestIdReused,
        Reason::GrantEnded => Rejection::GrantEnded,
        _ => return None,
    })
}
