//! A stream of the cluster's that goes on at another node when it breaks. What it is asked for is the
//! caller's: after which position, that is.

use std::time::Duration;

use holdfast_client_core::backoff::Backoff;
use holdfast_proto::v1::{Failure, Reason};
use tokio::time::Instant;
use tonic::Streaming;

use super::{Asked, CallError, Unary};
use crate::connection::NodeChannel;
use crate::jitter_seed;

#[derive(Debug)]
pub(crate) struct Resuming<F> {
    calls: Unary,
    stream: Option<Streaming<F>>,
    /// Who leads, as the last node said that could not go on.
    leader: String,
    backoff: Backoff,
    /// Not before then is it asked for again.
    not_before: Option<Instant>,
}

/// What came of a stream.
#[derive(Debug)]
pub(crate) enum Came<F> {
    Frame(F),
    /// It ended like this; the next one is requested again.
    End(Failure),
}

impl<F> Resuming<F> {
    pub(crate) fn new(calls: Unary) -> Resuming<F> {
        Resuming {
            calls,
            stream: None,
            leader: String::new(),
            backoff: Backoff::new(jitter_seed()),
            not_before: None,
        }
    }

    /// It is safe to drop this future: nothing is lost.
    pub(crate) async fn next<R: Clone, A: Asked<Streaming<F>>>(
        &mut self,
        request: R,
        ask: impl Fn(NodeChannel, R) -> A,
    ) -> Result<Came<F>, CallError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                if let Some(not_before) = self.not_before {
                    tokio::time::sleep_until(not_before).await;
                }
                let calls = self.calls.clone().first_asking(&self.leader);
                let stream = match calls.call_on(Duration::ZERO, request, ask).await {
                    Ok(stream) => stream,
                    Err(error) => return gap_in(error).map(Came::End),
                };
                self.not_before = None;
                self.stream.insert(stream)
            }
        };
        let failure = match stream.message().await {
            Ok(Some(frame)) => {
                self.backoff.reset();
                return Ok(Came::Frame(frame));
            }
            Ok(None) => Failure { retryable: true, ..Failure::default() },
            Err(status) => Failure::from_status(&status),
        };
        self.stream = None;
        self.leader.clone_from(&failure.leader);
        self.not_before = Some(Instant::now() + self.backoff.next_delay());
        Ok(Came::End(failure))
    }
}

/// It cannot be gone on from the position: something was missed.
pub(crate) fn is_gap(reason: Reason) -> bool {
    matches!(reason, Reason::Compacted | Reason::SlowReader)
}

/// A node may say so before there is a stream.
fn gap_in(error: CallError) -> Result<Failure, CallError> {
    match error {
        CallError::Rejected(rejection) if is_gap(rejection.reason) => Ok(Failure {
            reason: rejection.reason.into(),
            message: rejection.message,
            ..Failure::default()
        }),
        error => Err(error),
    }
}
