//! Where what a stream is told goes.

use holdfast_engine::{CutOff, Delivery, Streams};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Of a stream that a task serves.
pub(crate) type TaskOutbox = mpsc::Sender<Vec<Delivery>>;

#[derive(Debug)]
pub(crate) enum Outbox {
    Task(TaskOutbox),
    /// The token of a framed connection.
    Connection(usize),
}

/// Waits for nothing.
pub(super) fn put(outbox: &TaskOutbox, told: Vec<Delivery>) -> Result<(), CutOff> {
    outbox.try_send(told).map_err(|error| match error {
        TrySendError::Full(_) => CutOff::SlowReader,
        TrySendError::Closed(_) => CutOff::Gone,
    })
}

/// Leaves all that was gathered to the streams' readers.
pub(crate) fn put_all(streams: &mut Streams<TaskOutbox>) {
    streams.deliver(|outbox, told| warn_of(put(outbox, told)));
}

/// A stream that does not read is cut off: dropping its outbox ends it.
pub(super) fn warn_of(told: Result<(), CutOff>) -> Result<(), CutOff> {
    if told == Err(CutOff::SlowReader) {
        tracing::warn!("a stream is cut off: its client does not read");
    }
    told
}
