//! Watching what happens: a snapshot, then every event once and in order.
//!
//! A broken connection or a change of leader is not seen: the watch goes on after the last position that it
//! was told. Where it cannot, because the events since then are no longer kept, it says so and begins anew
//! with a snapshot.

use std::time::Duration;

use holdfast_proto::v1;
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_proto::v1::{EventPosition, Failure, Reason, WatchFrame, WatchRequest};
use tonic::Streaming;

use super::{CallError, Unary};
use crate::backoff::Backoff;

/// What a watch brings.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Watched {
    /// A page of the locks as they are. After the last one (`complete`) come events.
    Snapshot {
        locks: Vec<v1::LockSummary>,
        complete: bool,
    },
    Events(Vec<v1::WatchEvent>),
    /// It could not go on without a gap. What was told before may be out of date; a snapshot follows.
    StartedAnew {
        why: String,
    },
}

/// A watch of the locks under a prefix.
#[derive(Debug)]
pub struct Watch {
    calls: Unary,
    prefix: String,
    without_snapshot: bool,
    stream: Option<Streaming<WatchFrame>>,
    /// After what to go on; none before the snapshot is complete.
    position: Option<EventPosition>,
    /// Something of the snapshot was told.
    snapshot_begun: bool,
    backoff: Backoff,
}

impl Unary {
    /// Everything under the prefix: what is, then what happens. Nothing is asked before the first
    /// [`Watch::next`].
    pub fn watch(&self, prefix: &str) -> Watch {
        Watch {
            calls: self.clone(),
            prefix: prefix.to_owned(),
            without_snapshot: false,
            stream: None,
            position: None,
            snapshot_begun: false,
            backoff: Backoff::new(),
        }
    }
}

impl Watch {
    /// Only what happens from now on.
    #[must_use]
    pub fn without_snapshot(mut self) -> Watch {
        self.without_snapshot = true;
        self
    }

    /// What comes next, however long that takes. It is safe to drop this future: nothing is lost.
    pub async fn next(&mut self) -> Result<Watched, CallError> {
        loop {
            let Some(stream) = &mut self.stream else {
                self.begin().await?;
                continue;
            };
            match stream.message().await {
                Ok(Some(frame)) => {
                    if let Some(watched) = self.take(frame) {
                        return Ok(watched);
                    }
                }
                Ok(None) => self.stream = None,
                Err(status) => {
                    if let Some(anew) = self.ended(Failure::from_status(&status)).await? {
                        return Ok(anew);
                    }
                }
            }
        }
    }

    async fn begin(&mut self) -> Result<(), CallError> {
        let request = WatchRequest {
            prefix: self.prefix.clone(),
            after: self.position,
            without_snapshot: self.without_snapshot,
        };
        let ask = async |channel| WatchServiceClient::new(channel).watch(request.clone()).await;
        self.stream = Some(self.calls.call_on(Duration::ZERO, ask).await?);
        Ok(())
    }

    /// None if the frame only moves the position on.
    fn take(&mut self, frame: WatchFrame) -> Option<Watched> {
        self.backoff = Backoff::new();
        self.position = frame.position.or(self.position);
        if frame.snapshot_complete || !frame.locks.is_empty() {
            self.snapshot_begun = !frame.snapshot_complete;
            return Some(Watched::Snapshot {
                locks: frame.locks,
                complete: frame.snapshot_complete,
            });
        }
        (!frame.events.is_empty()).then_some(Watched::Events(frame.events))
    }

    async fn ended(&mut self, failure: Failure) -> Result<Option<Watched>, CallError> {
        self.stream = None;
        let lost = matches!(failure.reason(), Reason::Compacted | Reason::SlowReader);
        if !lost && !failure.retryable {
            return Err(CallError::Rejected(crate::error::Rejection::of(failure)));
        }
        self.calls.endpoints.follow_leader(&failure.leader);
        tokio::time::sleep(self.backoff.next_delay()).await;
        // A snapshot that was told in part cannot be gone on with either.
        let cut_off = self.position.is_none() && self.snapshot_begun;
        if !lost && !cut_off {
            return Ok(None);
        }
        self.position = None;
        self.snapshot_begun = false;
        self.without_snapshot = false;
        Ok(Some(Watched::StartedAnew { why: failure.message }))
    }
}
