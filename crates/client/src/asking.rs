//! A request that can stand in a queue: its caller waits for the answer, or goes away.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::field::Empty;
use tracing::{Instrument, Level, Span};

use crate::error::AcquireError;
use crate::guard::Guard;
use crate::session::{AcquireCall, Command, Handle, Ticket, Wanted, whole_ms};

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
    mut wanted: Wanted,
    wait: Duration,
    on_queued: Option<Box<dyn FnOnce(u64) + Send>>,
    current: Option<&CurrentSpan>,
) -> Result<Vec<Guard>, AcquireError> {
    wanted.check().map_err(AcquireError::Rejected)?;
    // Most programs do not look at spans, and need no words for them.
    let span = if tracing::span_enabled!(Level::INFO) {
        let lock = wanted.names_in_words();
        tracing::info_span!("acquire", lock, wait_ms = whole_ms(wait), token = Empty)
    } else {
        Span::none()
    };
    if let Some(current) = current
        && let Some(traceparent) = span.in_scope(|| (current.0)())
    {
        wanted.set_traceparent(traceparent);
    }
    let ticket = Ticket::default();
    let granted = granted(handle, wanted, on_queued, ticket.clone());
    let patience = wait.saturating_add(handle.request_timeout());
    let outcome = timeout(patience, granted)
        .instrument(span.clone())
        .await
        .unwrap_or_else(|_| Err(AcquireError::Unavailable(handle.unavailable(ticket.was_sent()))));
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

async fn granted(
    handle: &Handle,
    wanted: Wanted,
    on_queued: Option<Box<dyn FnOnce(u64) + Send>>,
    ticket: Ticket,
) -> Result<Vec<Guard>, AcquireError> {
    let _place = handle.admit_wait().await.map_err(AcquireError::Unavailable)?;
    let (reply, answer) = oneshot::channel();
    let abandon = AbandonOnDrop::new(handle, ticket.clone());
    let handle_of_guard = Some(handle.clone());
    let call = AcquireCall { wanted, ticket, reply, on_queued, handle: handle_of_guard };
    handle.send(Command::Acquire(Box::new(call)));
    let answer = answer.await;
    abandon.not_needed();
    let guards = answer.unwrap_or(Err(AcquireError::Closed))?;
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
