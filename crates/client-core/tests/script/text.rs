//! What the session wants of its driver, in words.

use holdfast_client_core::circuit::CircuitState;
use holdfast_client_core::error::RequestError;
use holdfast_client_core::lease::LocalTime;
use holdfast_client_core::session::{NotOpened, Output, Success};
use holdfast_proto::v1::ClientFrame;
use holdfast_proto::v1::operation::Kind;

pub(super) fn output(output: &Output<String>, now: LocalTime) -> String {
    match output {
        Output::Connect { address } => format!("connect to {address}"),
        Output::Disconnect { with_farewell: true } => "disconnect, with a farewell".to_owned(),
        Output::Disconnect { with_farewell: false } => "disconnect".to_owned(),
        Output::Completed { caller, outcome } => match outcome {
            Ok(success) => format!("{caller}: {}", succeeded(success, now)),
            Err(error) => format!("{caller}: {}", failed(error)),
        },
        Output::Queued(queued) => format!("call {} is queued", queued.call),
        Output::Opened => "open".to_owned(),
        Output::NotOpened(NotOpened::Refused(rejection)) => format!("not opened: {rejection}"),
        Output::NotOpened(NotOpened::NotReached) => "not opened: no node is there".to_owned(),
        Output::SessionEnded { reason, .. } => format!("session over: {reason}"),
        Output::Finished => "finished".to_owned(),
        Output::EndpointsLearned | Output::ConnectivityChanged => String::new(),
    }
}

/// Nothing as long as calls are made.
pub(super) fn circuit(state: CircuitState) -> &'static str {
    match state {
        CircuitState::Closed => "",
        CircuitState::Open => "circuit open",
        CircuitState::HalfOpen => "circuit half open",
    }
}

pub(super) fn frame(frame: &ClientFrame) -> String {
    let operations = frame.operations.iter().filter_map(|operation| operation.kind.as_ref());
    let operations: Vec<String> = operations.map(operation).collect();
    format!("send {} (has answers to {})", operations.join(", "), frame.acked_through)
}

fn operation(kind: &Kind) -> String {
    match kind {
        Kind::Open(it) => format!("open #{}{}", it.request_id, in_group(it.group)),
        Kind::Resume(it) => format!("resume #{}{}", it.request_id, in_group(it.group)),
        Kind::KeepAlive(it) => format!("keep-alive #{}", it.request_id),
        Kind::Acquire(it) => format!("acquire #{} {}", it.request_id, it.name),
        Kind::Release(it) => format!("release #{} {} token={}", it.request_id, it.name, it.token),
        Kind::Renew(it) => format!("renew #{} {} token={}", it.request_id, it.name, it.token),
        Kind::Convert(it) => format!("convert #{} {} token={}", it.request_id, it.name, it.token),
        Kind::Transfer(it) => format!("transfer #{} {} token={}", it.request_id, it.name, it.token),
        Kind::Cancel(it) => format!("cancel #{} of #{}", it.request_id, it.target),
        Kind::Status(it) => format!("status #{} {}", it.request_id, it.name),
        Kind::Close(it) => format!("close #{}", it.request_id),
        other => format!("{other:?}"),
    }
}

/// Nothing of the root group, as on the wire.
fn in_group(group: u32) -> String {
    if group == 0 { String::new() } else { format!(" in group {group}") }
}

fn succeeded(success: &Success, now: LocalTime) -> String {
    match success {
        Success::Granted(holds) => {
            let lines = holds.iter().map(|hold| {
                let until = hold.valid_until().map(|LocalTime(at)| at.as_secs_f64());
                let token =
                    hold.token(now).map_or_else(|lost| lost.to_string(), |it| it.to_string());
                format!("holds {} token={token} until {:.3}", hold.name, until.unwrap_or(0.0))
            });
            lines.collect::<Vec<_>>().join(", ")
        }
        Success::Released(outcome) => format!("release: {outcome:?}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn failed(error: &RequestError) -> String {
    match error {
        RequestError::Lost(lost) => lost.to_string(),
        RequestError::SessionLost(reason) => format!("session lost: {reason}"),
        RequestError::Rejected(rejection) if rejection.may_have_happened => {
            format!("rejected, may have happened: {rejection}")
        }
        RequestError::Rejected(rejection) => format!("rejected: {rejection}"),
        RequestError::Unavailable(unavailable) => {
            let may = if unavailable.may_have_happened { "may have happened" } else { "not sent" };
            format!("unavailable ({may}): {}", unavailable.message)
        }
        error => format!("{error:?}").to_lowercase(),
    }
}
