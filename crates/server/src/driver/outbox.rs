//! Where what a stream is told goes: to the task or the connection that writes to its client.

use std::fmt;

use holdfast_engine::{CutOff, Delivery, Streams};
use holdfast_proto::plain::FrameWriter;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Neither way waits.
pub(crate) trait Outbox: fmt::Debug + Send {
    /// The stream's own task will say it.
    fn put(&mut self, told: Vec<Delivery>) -> Result<(), CutOff>;

    /// It may be said at once, by the thread that calls. The frame is empty before and after.
    fn say(&mut self, told: Vec<Delivery>, _frame: &mut FrameWriter) -> Result<(), CutOff> {
        self.put(told)
    }
}

impl Outbox for mpsc::Sender<Vec<Delivery>> {
    fn put(&mut self, told: Vec<Delivery>) -> Result<(), CutOff> {
        self.try_send(told).map_err(|error| match error {
            TrySendError::Full(_) => CutOff::SlowReader,
            TrySendError::Closed(_) => CutOff::Gone,
        })
    }
}

/// Leaves all that was gathered to the streams' tasks.
pub(crate) fn put_all(streams: &mut Streams<Box<dyn Outbox>>) {
    streams.deliver(|outbox, told| warn_of(outbox.put(told)));
}

/// A stream that does not read is cut off: dropping its outbox ends it.
pub(super) fn warn_of(told: Result<(), CutOff>) -> Result<(), CutOff> {
    if told == Err(CutOff::SlowReader) {
        tracing::warn!("a stream is cut off: its client does not read");
    }
    told
}
