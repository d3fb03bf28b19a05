//! Where what a stream is told goes: to whoever writes to its client.

use std::fmt;

use holdfast_proto::plain::FrameWriter;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::inbox::Delivery;

/// Why a stream is told no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutOff {
    SlowReader,
    /// Its task has ended.
    Gone,
}

/// Neither way waits for anybody.
pub(crate) trait Outbox: fmt::Debug + Send {
    /// The stream's own task will say it.
    fn put(&mut self, told: Vec<Delivery>) -> Result<(), CutOff>;

    /// It may be said at once, by whoever calls. The frame is empty before and after.
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
