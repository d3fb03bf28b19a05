//! A session without the library: no heartbeats, no guard, every call by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_client::unary::{Acquired, CallId, Unary};
use holdfast_client::{Owner, ReleaseOutcome, SessionId};
use holdfast_proto::v1::AcquireRequest;

use crate::failure::StoryFailure;

#[derive(Debug)]
pub(crate) struct PlainSession {
    calls: Unary,
    id: SessionId,
    next_request: AtomicU64,
}

impl PlainSession {
    pub(crate) async fn open(calls: &Unary, ttl: Duration) -> Result<PlainSession, StoryFailure> {
        let id = SessionId::random().map_err(|error| StoryFailure::Aborted(error.to_string()))?;
        calls.open_session(id, ttl, None, Owner::default()).await?;
        Ok(PlainSession { calls: calls.clone(), id, next_request: 1.into() })
    }

    pub(crate) async fn try_acquire(&self, name: &str) -> Result<u64, StoryFailure> {
        let request = AcquireRequest {
            request_id: self.request_id(),
            name: name.to_owned(),
            ..AcquireRequest::default()
        };
        match self.calls.acquire(self.id, request).await? {
            Acquired::Granted(grant) => Ok(grant.token),
            other => Err(StoryFailure::Unexpected(format!("{name} was not granted: {other:?}"))),
        }
    }

    pub(crate) async fn release(
        &self,
        name: &str,
        token: u64,
    ) -> Result<ReleaseOutcome, StoryFailure> {
        let id = CallId { request_id: self.request_id(), acked_through: 0 };
        Ok(self.calls.release(self.id, id, name, token).await?)
    }

    fn request_id(&self) -> u64 {
        self.next_request.fetch_add(1, Ordering::Relaxed)
    }
}
