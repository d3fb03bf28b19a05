//! What happens when the disk is full: the loop halts between the halves of a turn and says so to
//! everybody, until the same turn goes through.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

use super::callers::failed;
use super::inbox::{Delivery, Input, Unavailable};
use super::log::{Log, LogError};
use super::{Driver, StopReason, disk_failed};

impl Driver {
    /// Tries until there is room on the disk. Meanwhile the node serves nothing and says so.
    pub(super) fn insist(
        &mut self,
        mut work: impl FnMut(&mut Log) -> Result<(), LogError>,
    ) -> Result<(), StopReason> {
        let mut full_since: Option<Instant> = None;
        loop {
            match work(&mut self.log) {
                Ok(()) => {
                    if let Some(since) = full_since {
                        tracing::info!(full_for = ?since.elapsed(), "the disk has room again");
                    }
                    return Ok(());
                }
                Err(error) if error.is_out_of_space() => {
                    if full_since.is_none() {
                        full_since = Some(Instant::now());
                        tracing::error!(%error, "the disk is full");
                    }
                    self.refuse_for_want_of_space()?;
                }
                Err(error) => return Err(disk_failed(error)),
            }
        }
    }

    fn refuse_for_want_of_space(&mut self) -> Result<(), StopReason> {
        let until = Instant::now() + self.tick;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let reason = Unavailable::OutOfSpace;
            match self.inbox.recv_timeout(left) {
                Ok(Input::Call { reply, .. }) => drop(reply.send(failed(reason))),
                Ok(Input::Frame { stream, operations, .. }) => {
                    for (request, _) in operations {
                        let answer = failed(reason);
                        self.streams.tell(stream, Delivery::Answer { request, answer });
                    }
                    self.streams.flush();
                }
                Ok(Input::Read { reply, .. }) => drop(reply.send(Err(reason))),
                // Consensus stands still between the halves of a turn; its messages are repeated.
                Ok(Input::PeerMessages(_)) => {}
                Ok(Input::Shutdown) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(StopReason::Told);
                }
                Ok(Input::StreamOpened { stream, outbox }) => self.streams.open(stream, outbox),
                // Its session keeps its TTL: the lock table cannot be told.
                Ok(Input::StreamClosed { stream, .. }) => {
                    self.streams.close(stream);
                }
                Ok(Input::SegmentPrepared(result)) => self.log.segment_prepared(result),
                Ok(Input::SnapshotSaved { group, result }) => self.snapshot_saved(group, result),
                Ok(
                    Input::Inspect { .. } | Input::PeerUnreachable(_) | Input::SnapshotSent { .. },
                ) => {}
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        Ok(())
    }
}
