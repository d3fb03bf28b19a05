//! Watching what happens: a snapshot, then every event once and in order.
//!
//! A broken connection or a change of leader is not seen: the watch goes on after the last position that it
//! was told. Where it cannot, because the events since then are no longer kept, it says so and begins again
//! with a snapshot.

use holdfast_client_core::error::Rejection;
use holdfast_proto::WatchPositions;
use holdfast_proto::v1;
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_proto::v1::{Failure, WatchEvents, WatchFrame, WatchRequest};

use super::resume::{Came, Resuming, is_gap};
use super::{CallError, Unary};

/// What a watch brings.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Watched {
    /// A page of the locks as they are. After the last one (`complete`) come events.
    Snapshot { locks: Vec<v1::LockSummary>, complete: bool },
    /// Decoded one by one, when they are read.
    Events(WatchEvents),
    /// It could not go on without a gap. What was told before may be out of date; a snapshot follows.
    Restarted { why: String },
}

/// A watch of the locks under a prefix.
#[derive(Debug)]
pub struct Watch {
    frames: Resuming<WatchFrame>,
    prefix: String,
    without_snapshot: bool,
    /// After what to go on, by group; none before the snapshot is complete.
    positions: WatchPositions,
    /// Something of the snapshot was told.
    snapshot_begun: bool,
}

impl Unary {
    /// Everything under the prefix: what is, then what happens. Nothing is asked before the first
    /// [`Watch::next`].
    pub fn watch(&self, prefix: &str) -> Watch {
        Watch {
            frames: Resuming::new(self.clone()),
            prefix: prefix.to_owned(),
            without_snapshot: false,
            positions: WatchPositions::default(),
            snapshot_begun: false,
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
            let request = self.positions.add_to(WatchRequest {
                prefix: self.prefix.clone(),
                without_snapshot: self.without_snapshot,
                ..Default::default()
            });
            let ask = |channel, request| async move {
                WatchServiceClient::new(channel).watch(request).await
            };
            let watched = match self.frames.next(request, ask).await? {
                Came::Frame(frame) => self.take(frame),
                Came::End(failure) => self.ended(failure)?,
            };
            if let Some(watched) = watched {
                return Ok(watched);
            }
        }
    }

    /// None if the frame only moves the position on.
    fn take(&mut self, frame: WatchFrame) -> Option<Watched> {
        self.positions.note(frame.position);
        if frame.snapshot_complete || !frame.locks.is_empty() {
            self.snapshot_begun = true;
            return Some(Watched::Snapshot {
                locks: frame.locks,
                complete: frame.snapshot_complete,
            });
        }
        (!frame.events.is_empty()).then_some(Watched::Events(frame.events))
    }

    fn ended(&mut self, failure: Failure) -> Result<Option<Watched>, CallError> {
        let lost = is_gap(failure.reason());
        if !lost && !failure.retryable {
            return Err(CallError::Rejected(Rejection::of(failure)));
        }
        // A snapshot that was told in part cannot be gone on with either.
        let cut_off = self.positions.is_empty() && self.snapshot_begun;
        if !lost && !cut_off {
            return Ok(None);
        }
        self.positions.clear();
        self.snapshot_begun = false;
        self.without_snapshot = false;
        Ok(Some(Watched::Restarted { why: failure.message }))
    }
}
