//! Where answers, and what a stream is told, go.

use holdfast_engine::{Answer, CutOff, Delivery, Streams};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// Where the answer to a command goes.
pub(crate) type ReplyTo = holdfast_engine::ReplyTo<oneshot::Sender<Answer>>;

/// Of a stream that a task serves.
pub(crate) type TaskOutbox = mpsc::Sender<Vec<Delivery>>;

#[derive(Debug)]
pub(crate) enum Outbox {
    Task(TaskOutbox),
    /// The token of a framed connection.
    Connection(usize),
}

/// Waits for nothing.
pub(crate) fn put(outbox: &TaskOutbox, deliveries: Vec<Delivery>) -> Result<(), CutOff> {
    outbox.try_send(deliveries).map_err(|error| match error {
        TrySendError::Full(_) => CutOff::SlowReader,
        TrySendError::Closed(_) => CutOff::Gone,
    })
}

/// Leaves all that was gathered to the streams' readers.
pub(crate) fn put_all(streams: &mut Streams<TaskOutbox>) {
    streams.deliver(|outbox, deliveries| warn_of(put(outbox, deliveries)));
}

/// A stream that does not read is cut off: dropping its outbox ends it.
pub(crate) fn warn_of(result: Result<(), CutOff>) -> Result<(), CutOff> {
    if result == Err(CutOff::SlowReader) {
        tracing::warn!("a stream is cut off: its client does not read");
    }
    result
}
