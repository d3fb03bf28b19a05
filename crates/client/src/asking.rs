//! A request that can stand in a queue: its caller waits for the answer, or goes away.

use std::fmt;
use std::sync::Arc;

use tracing::field::Empty;
use tracing::{Instrument, Level, Span};

use crate::error::AcquireError;
use crate::session::{AcquireCall, Awaited, Command, Granted, Handle, Ticket, Unanswered};

/// How a program tells of which span it is part, as a `traceparent`. It is asked within the span of the acquire.
#[derive(Clone)]
pub(crate) struct CurrentSpan(pub(crate) Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl fmt::Debug for CurrentSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentSpan")
    }
}

/// Returns the guards of what was asked for. If the future is dropped, nothing is left behind.
pub(crate) async fn ask(
    handle: &Handle,
    mut call: Box<AcquireCall>,
    answer: Awaited<Granted>,
    current: Option<&CurrentSpan>,
) -> Granted {
    let wanted = &mut call.wanted;
    wanted.check().map_err(AcquireError::Rejected)?;
    // Most programs do not look at spans, and need no words for them.
    let span = if tracing::span_enabled!(Level::INFO) {
        let (lock, wait_ms) = (wanted.names_in_words(), wanted.wait_ms());
        tracing::info_span!("acquire", lock, wait_ms, token = Empty)
    } else {
        Span::none()
    };
    if let Some(current) = current
        && let Some(traceparent) = span.in_scope(|| (current.0)())
    {
        wanted.set_traceparent(traceparent);
    }
    let outcome = granted(handle, call, answer).instrument(span.clone()).await;
    match outcome.as_deref() {
        Ok(guards) if !span.is_disabled() => {
            let token = guards.first().and_then(|guard| guard.token().ok());
            span.record("token", token);
        }
        Ok(_) => {}
        Err(error) => span.in_scope(|| tracing::debug!("not acquired: {error}")),
    }
    outcome
}

async fn granted(handle: &Handle, call: Box<AcquireCall>, answer: Awaited<Granted>) -> Granted {
    let place = handle.admit_wait(answer.patience_until()).await;
    let _place = place.map_err(AcquireError::Unavailable)?;
    let abandon = AbandonOnDrop::new(handle, call.ticket.clone());
    handle.send(Command::Acquire(call));
    let guards = match answer.answer().await {
        Ok(answer) => {
            abandon.not_needed();
            answer?
        }
        Err(Unanswered::OutOfPatience) => {
            let unavailable = handle.unavailable(abandon.ticket.was_sent());
            return Err(AcquireError::Unavailable(unavailable));
        }
        Err(Unanswered::Closed) => return Err(AcquireError::Closed),
    };
    // A grant may have been so long on its way that it is over by now.
    for guard in &guards {
        guard.token()?;
    }
    Ok(guards)
}

/// Tells the session's task that the caller is gone.
pub(crate) struct AbandonOnDrop<'a> {
    handle: &'a Handle,
    ticket: Ticket,
    is_needed: bool,
}

impl<'a> AbandonOnDrop<'a> {
    pub(crate) fn new(handle: &'a Handle, ticket: Ticket) -> AbandonOnDrop<'a> {
        AbandonOnDrop { handle, ticket, is_needed: true }
    }

    /// The answer is there.
    pub(crate) fn not_needed(mut self) {
        self.is_needed = false;
    }
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if self.is_needed {
            self.handle.send(Command::Abandon(self.ticket.clone()));
        }
    }
}
