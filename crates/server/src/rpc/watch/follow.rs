//! One watch that this node serves: the snapshot, then the events, until something ends it.
//!
//! An event is told at once if there was a silence before it; while much happens the reader is woken every
//! [`LOOK_EVERY`], and gets all there is.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::Unavailable;
use holdfast_proto::encode::read::summary;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, Reason, WatchFrame};
use holdfast_replica::{Leadership, NodeId};
use holdfast_service::{Admitted, Caller, Method, Permit};
use prost::Message;
use tokio::sync::watch;
use tokio::time::{interval, timeout};

use super::super::Rpc;
use super::super::failure::{stopping, unavailable};
use super::pending_events::{FRAME_BYTES_TARGET, PendingEvents, frame_at};
use super::queue::{FrameSender, Frames, ReaderGone, queue};
use super::snapshot::{self, SnapshotExtent};
use super::{Start, WatchTarget};
use crate::events::{Compacted, EventRing, Pace, Position};

/// No eye sees the difference, and waking a watch and its reader so often costs little.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often a watch that has nothing to tell says up to where.
const POSITION_INTERVAL: Duration = Duration::from_secs(5);
/// How often it is looked whether a reader that does not read has been left behind.
const LAG_CHECK_INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn start(
    rpc: Rpc,
    caller: Caller,
    ask: Admitted<WatchTarget>,
    permit: Permit,
) -> Frames {
    let (sender, frames) = queue();
    tokio::spawn(async move {
        let _permit = permit;
        let metrics = Arc::clone(&rpc.metrics);
        metrics.watch_streams.rise();
        let start = ask.get().start;
        let watcher = Watcher { rpc, caller, ask, sender };
        if let Err(Ended::Because(failure)) = watcher.run(start).await {
            let is_slow = failure.reason() == Reason::SlowReader;
            if is_slow {
                metrics.watches_left_behind.rise();
            }
            watcher.sender.end(Some(failure.into()), is_slow);
        }
        metrics.watch_streams.fall();
    });
    frames
}

/// Why a watch ends.
enum Ended {
    Because(Failure),
    /// The reader is gone.
    ReaderGone,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Because(failure)
    }
}

struct Watcher {
    rpc: Rpc,
    caller: Caller,
    ask: Admitted<WatchTarget>,
    sender: FrameSender,
}

impl Watcher {
    async fn run(&self, start: Start) -> Result<(), Ended> {
        let group = self.ask.get().group;
        let mut extent = SnapshotExtent::of(group);
        let position = match start {
            Start::Snapshot => {
                extent = tokio::select! {
                    sent = self.send_snapshot() => sent?,
                    failure = self.rpc.credential_end(&self.caller) => return Err(failure.into()),
                };
                extent.start()
            }
            Start::Now => {
                let applied = snapshot::applied_index(&self.rpc, &self.ask).await?;
                let position = Position::end_of(group, applied);
                self.send(frame_at(position, &extent), position).await?;
                position
            }
            Start::After(position) => {
                // The next leader has applied all that was committed, and so all that was extent.
                let applied = snapshot::applied_index(&self.rpc, &self.ask).await?;
                if position.index > applied || !self.ring().keeps(position) {
                    return Err(compacted().into());
                }
                position
            }
        };
        self.follow(position, extent).await
    }

    async fn send_snapshot(&self) -> Result<SnapshotExtent, Ended> {
        let mut extent = SnapshotExtent::of(self.ask.get().group);
        let mut after = None;
        loop {
            self.check_again()?;
            let page = snapshot::page(&self.rpc, &self.ask, after).await?;
            extent.note(&page);
            let start = extent.start();
            let complete = page.next.is_none();
            let mut frame = WatchFrame::default();
            let mut bytes = 0;
            for lock in page.locks {
                let lock = summary(lock, page.at);
                bytes += lock.encoded_len();
                if bytes > FRAME_BYTES_TARGET && !frame.locks.is_empty() {
                    bytes = lock.encoded_len();
                    self.send(std::mem::take(&mut frame), start).await?;
                }
                frame.locks.push(lock);
            }
            frame.snapshot_complete = complete;
            frame.position =
                extent.is_left_behind(start).then(|| start.into()).filter(|_| complete);
            self.send(frame, start).await?;
            after = page.next;
            if after.is_none() {
                return Ok(extent);
            }
        }
    }

    async fn follow(&self, position: Position, extent: SnapshotExtent) -> Result<(), Ended> {
        let mut recorded = self.ring().news();
        let mut leadership = self.rpc.door.watch_leadership(self.ask.get().group);
        let mut pause = interval(POSITION_INTERVAL);
        let mut credential_end = pin!(self.rpc.credential_end(&self.caller));
        let mut pace = Pace::new(LOOK_EVERY);
        let events = Arc::clone(self.ring());
        let reader = (self.rpc.door.service().clone(), self.caller.clone());
        let names = self.ask.get().names.clone();
        self.sender.follow(PendingEvents::new(events, names, reader, extent, position));
        self.sender.check_for_events().map_err(|Compacted| too_slow())?;
        loop {
            let more = async {
                let changed = recorded.changed().await;
                pace.keep().await;
                changed
            };
            tokio::select! {
                changed = more => {
                    changed.map_err(|_| stopping())?;
                    self.check_again()?;
                    self.sender.check_for_events().map_err(|Compacted| too_slow())?;
                }
                leader = lost(&mut leadership) => {
                    let leader = leader.ok_or_else(stopping)?;
                    let reason = Unavailable::NotLeader { leader };
                    return Err(unavailable(reason, &self.rpc.membership).into());
                }
                () = self.rpc.stopping.begun() => return Err(stopping().into()),
                () = self.sender.closed() => return Err(Ended::ReaderGone),
                failure = &mut credential_end => return Err(failure.into()),
                _ = pause.tick() => self.sender.send_position(),
            }
        }
    }

    fn ring(&self) -> &Arc<EventRing> {
        self.rpc.events.of(self.ask.get().group)
    }

    /// What was allowed when it began may have been revoked.
    fn check_again(&self) -> Result<(), Failure> {
        let about = self.ask.get().about();
        self.rpc.door.service().check_again(&self.caller, Method::Watch, about)
    }

    /// Waits for the reader, but not past the point where the ring has forgotten what it needs next.
    async fn send(&self, frame: WatchFrame, position: Position) -> Result<(), Ended> {
        while timeout(LAG_CHECK_INTERVAL, self.sender.room()).await.is_err() {
            if !self.ring().keeps(position) {
                return Err(too_slow().into());
            }
            if self.rpc.stopping.has_begun() {
                return Err(stopping().into());
            }
        }
        self.sender.send(frame).map_err(|ReaderGone| Ended::ReaderGone)
    }
}

/// Returns when this node leads no more: with who does, or with none if the shard is gone.
async fn lost(leadership: &mut watch::Receiver<Leadership>) -> Option<Option<NodeId>> {
    leadership.wait_for(|now| !now.is_here).await.ok().map(|now| now.leader)
}

fn compacted() -> Failure {
    refused(
        Reason::Compacted,
        "the events after this position are no longer kept; start a new watch, without a position",
    )
}

fn too_slow() -> Failure {
    refused(
        Reason::SlowReader,
        "the watch was cut off because its events were not read fast enough, and some are no longer \
         kept; start a new watch, without a position, and read faster or a narrower prefix",
    )
}
