//! What the tests of this crate share.

use holdfast_replica::Leadership;
use holdfast_service::{Admitted, Caller, Method, Service};
use tokio::sync::watch;

use crate::driver::{self, DriverHandle, Inbox};

/// The node's end of an inbox, and the ends that a driver would hold.
pub(crate) fn inbox() -> (DriverHandle, Inbox, watch::Sender<Leadership>) {
    let (sender, inputs) = driver::inbox().unwrap();
    let leadership = watch::Sender::new(Leadership::default());
    (DriverHandle::new(sender, leadership.subscribe()), inputs, leadership)
}

/// As a node does it of its own accord.
pub(crate) fn admitted<T>(action: T) -> Admitted<T> {
    Service::default().admit(&Caller::node(1), Method::Acquire, action).unwrap()
}
