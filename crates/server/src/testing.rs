//! What the tests of this crate share.

use holdfast_replica::Leadership;
use holdfast_service::{Admitted, Caller, Method, Service};
use tokio::sync::watch;

use crate::inbox::{self, Inbox, ShardHandle};

/// The node's end of an inbox, and the ends that a shard would hold.
pub(crate) fn inbox() -> (ShardHandle, Inbox, watch::Sender<Leadership>) {
    let (sender, inputs) = inbox::inbox().unwrap();
    let leadership = watch::Sender::new(Leadership::default());
    (ShardHandle::new(sender, leadership.subscribe().into()), inputs, leadership)
}

/// As a node does it of its own accord.
pub(crate) fn admitted<T>(action: T) -> Admitted<T> {
    Service::default().admit(&Caller::node(1), Method::Acquire, action).unwrap()
}
