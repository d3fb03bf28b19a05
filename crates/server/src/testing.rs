//! What the tests of this crate share.

use std::sync::mpsc::{Receiver, sync_channel};

use holdfast_replica::Leadership;
use tokio::sync::watch;

use crate::driver::{DriverHandle, Input};

/// The node's end of an inbox, and the ends that a driver would hold.
pub(crate) fn inbox() -> (DriverHandle, Receiver<Input>, watch::Sender<Leadership>) {
    let (sender, inputs) = sync_channel(1_024);
    let leadership = watch::Sender::new(Leadership::default());
    (DriverHandle::new(sender, leadership.subscribe()), inputs, leadership)
}
