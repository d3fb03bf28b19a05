//! Operators' interventions.

use holdfast_core::command::{Action, Intervention};
use holdfast_core::{Command, Rejection, Span};

use super::{checked, lock_name, public_session_id, token};
use crate::failure::rejected;
use crate::v1::{self, Failure};

pub fn break_holds(request: v1::BreakRequest) -> Result<Command, Failure> {
    let token = if request.token == 0 { None } else { Some(token(request.token)?) };
    let name = lock_name(&request.name)?;
    intervene(request.intervention, Action::Break { name, token })
}

pub fn move_lock(request: v1::MoveLockRequest) -> Result<Command, Failure> {
    let name = lock_name(&request.name)?;
    let token = token(request.token)?;
    let to = public_session_id(&request.to_public_session_id)?;
    intervene(request.intervention, Action::Transfer { name, token, to })
}

pub fn freeze(request: v1::FreezeRequest) -> Result<Command, Failure> {
    let ttl = Span::from_ms(request.ttl_ms);
    intervene(request.intervention, Action::Freeze { prefix: request.prefix.into(), ttl })
}

pub fn thaw(request: v1::ThawRequest) -> Result<Command, Failure> {
    intervene(request.intervention, Action::Thaw { prefix: request.prefix.into() })
}

pub fn set_permits(request: v1::SetPermitsRequest) -> Result<Command, Failure> {
    let name = lock_name(&request.name)?;
    let limit = (request.permits > 0).then_some(request.permits);
    intervene(request.intervention, Action::SetPermits { name, limit })
}

pub fn kill_session(request: v1::KillSessionRequest) -> Result<Command, Failure> {
    let session = public_session_id(&request.public_session_id)?;
    intervene(request.intervention, Action::KillSession { session })
}

pub fn reopen(request: v1::ReopenRequest) -> Result<Command, Failure> {
    let name = lock_name(&request.name)?;
    intervene(request.intervention, Action::Reopen { name })
}

pub fn set_limits(request: v1::SetLimitsRequest) -> Result<Command, Failure> {
    let v1::SetLimitsRequest { intervention, bytes, locks } = request;
    intervene(intervention, Action::SetLimits { bytes, locks })
}

fn intervene(words: Option<v1::Intervention>, action: Action) -> Result<Command, Failure> {
    let words = words.ok_or_else(|| rejected(Rejection::InvalidIntervention))?;
    let (by, reason) = (words.by.into(), words.reason.into());
    checked(Command::Intervene(Intervention { by, reason, action, identity: None }))
}
