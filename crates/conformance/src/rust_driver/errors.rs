//! The library's errors, in the words that all drivers share.

use holdfast_client::unary::CallError;
use holdfast_client::{
    AcquireError, ConnectError, ConvertError, Cycle, LossReason, Rejection, ReleaseError,
    RenewError, TransferError, Unavailable,
};
use serde_json::{Value, json};

pub(crate) fn lost(reason: LossReason) -> Value {
    json!({"kind": "lost", "reason": loss_name(reason)})
}

pub(crate) fn loss_name(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Expired => "expired",
        LossReason::OwnTimeOver => "own_time_over",
        LossReason::HoldTtl => "hold_ttl",
        LossReason::MaxHold => "max_hold",
        LossReason::SessionExpired => "session_expired",
        LossReason::SessionClosed => "session_closed",
        LossReason::Disconnected => "disconnected",
        LossReason::Wounded => "wounded",
        LossReason::Broken => "broken",
        LossReason::SessionKilled => "session_killed",
        LossReason::Denied => "denied",
        LossReason::Transferred => "transferred",
        LossReason::LeaderChanged => "leader_changed",
        LossReason::LeaderUnreachable => "leader_unreachable",
        _ => "ended",
    }
}

fn rejected(rejection: &Rejection) -> Value {
    let (reason, retryable) = (rejection.reason.wire_name(), rejection.is_retryable());
    match reason.as_str() {
        "unauthenticated" | "credential_expired" => {
            json!({"kind": "unauthenticated", "message": rejection.message})
        }
        "permission_denied" => json!({"kind": reason, "message": rejection.message}),
        _ => json!({"kind": "rejected", "reason": reason, "retryable": retryable}),
    }
}

fn unavailable(unavailable: &Unavailable) -> Value {
    let (words, may_have_happened) = (&unavailable.message, unavailable.may_have_happened);
    json!({"kind": "unavailable", "message": words, "may_have_happened": may_have_happened})
}

fn deadlock(cycle: &Cycle) -> Value {
    let links = cycle.0.iter().map(|link| {
        json!({"session": link.public_session_id, "actor": link.actor, "waits_for": link.waits_for})
    });
    json!({"kind": "deadlock", "cycle": links.collect::<Vec<_>>()})
}

pub(crate) fn other(error: &dyn std::fmt::Display) -> Value {
    json!({"kind": "other", "message": error.to_string()})
}

pub(crate) fn of_connect(error: &ConnectError) -> Value {
    match error {
        ConnectError::Rejected(rejection) => rejected(rejection),
        ConnectError::Unavailable(it) => unavailable(it),
        error => json!({"kind": "invalid", "message": error.to_string()}),
    }
}

pub(crate) fn of_call(error: &CallError) -> Value {
    match error {
        CallError::Rejected(rejection) => rejected(rejection),
        CallError::Unavailable(it) => unavailable(it),
        error => other(error),
    }
}

pub(crate) fn of_acquire(error: &AcquireError) -> Value {
    match error {
        AcquireError::Busy => json!({"kind": "busy"}),
        AcquireError::TimedOut => json!({"kind": "timed_out"}),
        AcquireError::Deadlock(cycle) => deadlock(cycle),
        AcquireError::Died { since } => json!({"kind": "died", "since": since.0.to_string()}),
        AcquireError::Lost(it) => lost(it.reason),
        AcquireError::SessionLost(reason) => lost(*reason),
        AcquireError::Rejected(rejection) => rejected(rejection),
        AcquireError::Unavailable(it) => unavailable(it),
        AcquireError::Closed => json!({"kind": "closed"}),
        error => other(error),
    }
}

pub(crate) fn of_release(error: &ReleaseError) -> Value {
    match error {
        ReleaseError::Rejected(rejection) => rejected(rejection),
        ReleaseError::Unavailable(it) => unavailable(it),
        error => other(error),
    }
}

pub(crate) fn of_renew(error: &RenewError) -> Value {
    match error {
        RenewError::Lost(it) => lost(it.reason),
        RenewError::Rejected(rejection) => rejected(rejection),
        RenewError::Unavailable(it) => unavailable(it),
        error => other(error),
    }
}

pub(crate) fn of_convert(error: &ConvertError) -> Value {
    match error {
        ConvertError::Busy => json!({"kind": "busy"}),
        ConvertError::TimedOut => json!({"kind": "timed_out"}),
        ConvertError::Deadlock(cycle) => deadlock(cycle),
        ConvertError::Lost(it) => lost(it.reason),
        ConvertError::Rejected(rejection) => rejected(rejection),
        ConvertError::Unavailable(it) => unavailable(it),
        error => other(error),
    }
}

pub(crate) fn of_transfer(error: &TransferError) -> Value {
    match error {
        TransferError::NoSuchWaiter => {
            json!({"kind": "rejected", "reason": "no_such_waiter", "retryable": false})
        }
        TransferError::Lost(it) => lost(it.reason),
        TransferError::Rejected(rejection) => rejected(rejection),
        TransferError::Unavailable(it) => unavailable(it),
        error => other(error),
    }
}
