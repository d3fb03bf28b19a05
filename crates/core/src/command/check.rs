//! What can be said about a command without looking at the table.

use super::{Acquire, Command, OpenSession};
use crate::id::{RequestId, SessionId};
use crate::limits::Limits;
use crate::outcome::Rejection;
use crate::time::Span;

impl Command {
    /// Is the command well-formed and within the limits? Whoever takes commands in should ask before
    /// they enter the log; the table asks again.
    pub fn check(&self, limits: &Limits) -> Result<(), Rejection> {
        match self {
            Command::OpenSession(open) => check_open(open, limits),
            Command::Acquire(acquire) => check_acquire(acquire, limits),
            Command::Cancel { call, target } => {
                check_request(call.request)?;
                check_request(*target)?;
                // It would have to be both an acquire and its own cancellation.
                if *target == call.request { Err(Rejection::InvalidRequestId) } else { Ok(()) }
            }
            Command::Release { call, .. } => check_request(call.request),
            Command::Renew { call, ttl, .. } => {
                check_request(call.request)?;
                ttl.map_or(Ok(()), |ttl| check_ttl(ttl, limits))
            }
            Command::AttachStream { .. }
            | Command::DetachStream { .. }
            | Command::Touch { .. }
            | Command::CloseSession { .. }
            | Command::BeginTerm { .. }
            | Command::Tick => Ok(()),
        }
    }

    /// The session that sent it; none for the leader's own commands.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Command::OpenSession(open) => Some(open.session),
            Command::AttachStream { session, .. }
            | Command::DetachStream { session, .. }
            | Command::Touch { session, .. }
            | Command::CloseSession { session } => Some(*session),
            Command::Acquire(acquire) => Some(acquire.call.session),
            Command::Cancel { call, .. }
            | Command::Release { call, .. }
            | Command::Renew { call, .. } => Some(call.session),
            Command::BeginTerm { .. } | Command::Tick => None,
        }
    }
}

fn check_open(open: &OpenSession, limits: &Limits) -> Result<(), Rejection> {
    check_ttl(open.ttl, limits)?;
    if open.linger > limits.linger_max {
        return Err(Rejection::InvalidTtl);
    }
    let texts = [&open.owner.application, &open.owner.host, &open.owner.note];
    if texts.iter().any(|text| text.len() > limits.owner_text_bytes_max) {
        return Err(Rejection::InvalidOwner);
    }
    Ok(())
}

fn check_acquire(acquire: &Acquire, limits: &Limits) -> Result<(), Rejection> {
    check_request(acquire.call.request)?;
    if acquire.wait > limits.wait_max {
        return Err(Rejection::InvalidWait);
    }
    if let Some(ttl) = acquire.ttl {
        check_ttl(ttl, limits)?;
    }
    if let Some(max_hold) = acquire.max_hold
        && (max_hold == Span::ZERO || max_hold > limits.max_hold_max)
    {
        return Err(Rejection::InvalidTtl);
    }
    if acquire.metadata.len() > limits.metadata_bytes_max {
        return Err(Rejection::InvalidMetadata);
    }
    Ok(())
}

fn check_request(request: RequestId) -> Result<(), Rejection> {
    if request == RequestId(0) { Err(Rejection::InvalidRequestId) } else { Ok(()) }
}

fn check_ttl(ttl: Span, limits: &Limits) -> Result<(), Rejection> {
    let allowed = limits.ttl_min..=limits.ttl_max;
    if allowed.contains(&ttl) { Ok(()) } else { Err(Rejection::InvalidTtl) }
}
