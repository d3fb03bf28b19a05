//! What a step was, for people; put into words only if a violation is shown.

use std::fmt;

use holdfast_core::{FenceToken, Outcome, SessionId};

use crate::check::findings::{Which, Who};
use crate::history::{ClientOperation, Input, Output};

#[derive(Clone, Copy, Debug)]
pub(super) enum Label<'a> {
    Asked(&'a ClientOperation),
    Closes(SessionId),
    /// By the log, without a request.
    Ends(SessionId, FenceToken),
    Converts(SessionId, FenceToken),
}

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Asked(operation) => {
                let which = Which(operation.session, operation.request);
                write!(f, "{which}: {}", said(operation))
            }
            Label::Closes(session) => write!(f, "{} closes", Who(*session)),
            Label::Ends(session, token) => {
                write!(f, "the log ends the hold of {} under {token}", Who(*session))
            }
            Label::Converts(session, token) => {
                write!(f, "the log converts the hold of {} to {token}", Who(*session))
            }
        }
    }
}

fn said(operation: &ClientOperation) -> String {
    let question = match &operation.input {
        Input::OpenSession { .. } => String::from("open"),
        Input::Touch => String::from("touch"),
        Input::CloseSession => String::from("close"),
        Input::Acquire { wait_ms: 0, .. } => String::from("try"),
        Input::Acquire { wait_ms, .. } => format!("acquire, waiting up to {wait_ms} ms"),
        Input::Cancel { target } => format!("cancel {}", target.0),
        Input::Release { token, .. } => format!("release {token}"),
        Input::Renew { token, .. } => format!("renew {token}"),
        Input::Take(take) => format!("take {:?} ({:?})", take.members, take.terms.wait),
        Input::Convert { token, to, .. } => format!("convert {token} to {to:?}"),
        Input::Proclaim { token, .. } => format!("proclaim {token}"),
        Input::Transfer { token, to, .. } => format!("transfer {token} to {to}"),
        Input::Intervene(action) => format!("{action:?}"),
        Input::Status { .. } => String::from("status"),
    };
    let answer = match &operation.returned {
        None => String::from("no answer"),
        Some((_, Output::Outcome(Outcome::Granted(grant)))) => format!("granted {}", grant.token),
        Some((_, Output::Outcome(outcome))) => format!("{outcome:?}"),
        Some((_, Output::Status { holder: None, .. })) => String::from("free"),
        Some((_, Output::Status { holder: Some((session, token)), .. })) => {
            format!("held by {} under {token}", Who(*session))
        }
    };
    format!("{question} -> {answer}")
}
