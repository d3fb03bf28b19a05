//! Server-sent events: text that goes on for as long as the browser listens.
//!
//! A few messages are kept for one who does not read at once; who does not read for [`PATIENCE`] is cut off,
//! and comes again by itself.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::api_error::ApiError;

const MESSAGES_AHEAD: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);

/// The browser's end is gone, or does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutOff;

#[derive(Debug)]
pub(crate) struct SseSender {
    messages: mpsc::Sender<Bytes>,
    patience: Duration,
    _permit: OwnedSemaphorePermit,
}

/// An sse, and the answer through which the browser hears what is put into it.
pub(crate) fn open(permits: &Arc<Semaphore>) -> Result<(SseSender, Response), ApiError> {
    let permit = Arc::clone(permits).try_acquire_owned().map_err(|_| {
        let words = "too many dashboards are open at this node; close some, or open it at another";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", words)
    })?;
    let (messages, receiver) = mpsc::channel(MESSAGES_AHEAD);
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    let headers = [(CONTENT_TYPE, "text/event-stream")];
    let sse = SseSender { messages, patience: PATIENCE, _permit: permit };
    Ok((sse, (headers, body).into_response()))
}

impl SseSender {
    /// The id, if there is one, comes back when the browser connects again.
    pub(crate) async fn send_event(
        &self,
        kind: &str,
        id: &str,
        data: &Value,
    ) -> Result<(), CutOff> {
        let id = if id.is_empty() { String::new() } else { format!("id: {id}\n") };
        // JSON has no line breaks of its own, so nothing in it can begin another field.
        self.send(format!("event: {kind}\n{id}data: {data}\n\n").into()).await
    }

    pub(crate) async fn send(&self, message: Bytes) -> Result<(), CutOff> {
        match timeout(self.patience, self.messages.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(CutOff),
        }
    }

    /// Returns when the browser has gone.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let messages = self.messages.clone();
        async move { messages.closed().await }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_viewer_that_does_not_read_is_cut_off_and_makes_room() {
        let places = Arc::new(Semaphore::new(1));
        let (mut sse, unread) = open(&places).unwrap();
        assert_eq!(open(&places).unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
        sse.patience = Duration::from_millis(10);
        for _ in 0..MESSAGES_AHEAD {
            assert_eq!(sse.send_event("second", "", &Value::Null).await, Ok(()));
        }
        assert_eq!(sse.send_event("second", "", &Value::Null).await, Err(CutOff));
        drop(sse);
        assert!(open(&places).is_ok());
        drop(unread);
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_is_noticed() {
        let places = Arc::new(Semaphore::new(1));
        let (sse, unread) = open(&places).unwrap();
        let closed = sse.closed();
        drop(unread);
        closed.await;
        assert_eq!(sse.send_event("second", "", &Value::Null).await, Err(CutOff));
    }
}
