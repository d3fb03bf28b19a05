//! An acquire: its caller waits for the locks, or goes away.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::error::{Rejection, RequestError};
use holdfast_client_core::session::{Request, Success};
use tracing::field::Empty;
use tracing::{Instrument, Level, Span};

use crate::error::AcquireError;
use crate::guard::Guard;
use crate::limits::{check_metadata, check_name, check_names};
use crate::session::{OnQueued, Sessions};

/// How a program tells of which span it is part, as a `traceparent`. It is asked within the span of the acquire.
#[derive(Clone)]
pub(crate) struct CurrentSpan(pub(crate) Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl fmt::Debug for CurrentSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentSpan")
    }
}

/// Returns the guards of what was asked for, in that order. If the future is dropped, nothing is left behind.
pub(crate) async fn acquire(
    sessions: &Sessions,
    mut request: Request,
    wait: Duration,
    on_queued: Option<OnQueued>,
    current: Option<&CurrentSpan>,
) -> Result<Vec<Guard>, AcquireError> {
    check(&request).map_err(AcquireError::Rejected)?;
    // Most programs do not look at spans, and need no words for them.
    let span = if tracing::span_enabled!(Level::INFO) {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        tracing::info_span!("acquire", lock = names_in_words(&request), wait_ms, token = Empty)
    } else {
        Span::none()
    };
    if let Some(current) = current
        && let Some(traceparent) = span.in_scope(|| (current.0)())
    {
        set_traceparent(&mut request, traceparent);
    }
    let outcome = granted(sessions, request, wait, on_queued).instrument(span.clone()).await;
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
    sessions: &Sessions,
    request: Request,
    wait: Duration,
    on_queued: Option<OnQueued>,
) -> Result<Vec<Guard>, AcquireError> {
    let (outcome, handle) = sessions.acquire(request, wait, on_queued).await;
    let Success::Granted(holds) = outcome? else {
        return Err(RequestError::Closed.into());
    };
    let guards: Vec<Guard> =
        holds.into_iter().map(|hold| Guard::new(hold, handle.clone())).collect();
    // A grant may have been so long on its way that it is over by now.
    for guard in &guards {
        guard.token()?;
    }
    Ok(guards)
}

/// Whether a node could take it at all.
fn check(request: &Request) -> Result<(), Rejection> {
    match request {
        Request::Acquire(request) => {
            check_name(&request.name)?;
            check_metadata(&request.metadata)
        }
        Request::AcquireAll(request) => {
            check_names(request.members.iter().map(|member| member.name.as_str()))?;
            check_metadata(&request.metadata)
        }
        _ => Ok(()),
    }
}

/// For readers of traces.
fn names_in_words(request: &Request) -> String {
    match request {
        Request::Acquire(request) => request.name.clone(),
        Request::AcquireAll(request) => {
            let names: Vec<_> = request.members.iter().map(|member| &*member.name).collect();
            names.join(", ")
        }
        _ => String::new(),
    }
}

/// Unless the caller has said so before.
fn set_traceparent(request: &mut Request, traceparent: String) {
    let known = match request {
        Request::Acquire(request) => &mut request.traceparent,
        Request::AcquireAll(request) => &mut request.traceparent,
        _ => return,
    };
    if known.is_empty() {
        *known = traceparent;
    }
}
