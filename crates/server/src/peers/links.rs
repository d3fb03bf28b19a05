//! The driver's side of the peers: hand over and forget.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_replica::{GroupId, NodeId};
use tokio::task::JoinSet;

use super::frames::{FrameQueue, Messages, NotQueued};
use super::snapshot_out::SnapshotSender;
use super::{Handshake, dial};
use crate::driver::{DriverHandle, Input};

/// Every other node, as the driver sends to it. Cheap to clone; no method waits, and each may be
/// called from any thread.
#[derive(Clone, Debug)]
pub(crate) struct PeerLinks {
    links: Arc<BTreeMap<NodeId, Arc<Link>>>,
    snapshots: SnapshotSender,
}

/// One other node.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: NodeId,
    driver: DriverHandle,
    /// Of the connection that is up, if one is.
    queue: Mutex<Option<FrameQueue>>,
    /// The driver knows that messages get lost; said again only after some went through.
    told_unreachable: AtomicBool,
}

impl PeerLinks {
    /// Begins to dial every other node, in tasks of the given set. Call it within the runtime.
    pub(crate) fn start(
        handshake: &Arc<Handshake>,
        driver: &DriverHandle,
        tasks: &mut JoinSet<()>,
    ) -> PeerLinks {
        let mut links = BTreeMap::new();
        for (node, member) in handshake.membership.others() {
            let link = Arc::new(Link::new(node, driver.clone()));
            let dialling =
                dial::keep_dialled(Arc::clone(&link), member.peer.clone(), Arc::clone(handshake));
            tasks.spawn(dialling);
            links.insert(node, link);
        }
        let snapshots = SnapshotSender::new(Arc::clone(handshake), driver.clone());
        PeerLinks { links: Arc::new(links), snapshots }
    }

    /// Queues the messages for the next frame to `to`. If they do not fit, or there is no connection,
    /// they are dropped and the driver hears [`Input::PeerUnreachable`].
    pub(crate) fn send(&self, to: NodeId, messages: Vec<(GroupId, Vec<u8>)>) {
        match self.links.get(&to) {
            Some(link) => link.send(messages),
            None => tracing::error!(%to, "messages for a node that is not in the configuration"),
        }
    }

    /// Sends a message that carries a snapshot, on a connection of its own. How it went comes as
    /// [`Input::SnapshotSent`].
    pub(crate) fn send_snapshot(&self, to: NodeId, group: GroupId, message: Vec<u8>) {
        self.snapshots.send(to, group, message);
    }

    /// Whether the connection to the node is up. To itself a node is always connected.
    pub(crate) fn reachable(&self, node: NodeId) -> bool {
        self.links.get(&node).is_none_or(|link| link.is_up())
    }
}

impl Link {
    pub(super) fn new(node: NodeId, driver: DriverHandle) -> Link {
        Link { node, driver, queue: Mutex::new(None), told_unreachable: AtomicBool::new(false) }
    }

    pub(super) fn send(&self, messages: Messages) {
        let queued = match &*self.lock() {
            Some(queue) => queue.push(messages),
            None => Err(NotQueued),
        };
        match queued {
            Ok(()) => self.told_unreachable.store(false, Ordering::Relaxed),
            Err(NotQueued) => self.tell_unreachable(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.lock().is_some()
    }

    pub(super) fn up(&self, queue: FrameQueue) {
        *self.lock() = Some(queue);
    }

    /// What was queued is lost.
    pub(super) fn down(&self) {
        if self.lock().take().is_some() {
            self.tell_unreachable();
        }
    }

    /// If the driver's inbox is full the next loss tells it.
    fn tell_unreachable(&self) {
        if self.told_unreachable.load(Ordering::Relaxed) {
            return;
        }
        let told = self.driver.send(Input::PeerUnreachable(self.node)).is_ok();
        self.told_unreachable.store(told, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<FrameQueue>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::peer_v1::Hello;

    use super::*;
    use crate::peers::frames::frames;
    use crate::testing::inbox;

    const GROUP: GroupId = GroupId(1);

    #[test]
    fn a_loss_is_told_once_until_messages_go_through_again() {
        let (driver, inputs, _leadership) = inbox();
        let link = Link::new(NodeId(2), driver);
        let told = || inputs.waiting().filter(|i| matches!(i, Input::PeerUnreachable(_))).count();

        for _ in 0..3 {
            link.send(vec![(GROUP, vec![1])]);
        }
        assert_eq!(told(), 1);

        let (queue, connection) = frames(Hello::default());
        link.up(queue);
        link.send(vec![(GROUP, vec![2])]);
        assert_eq!(told(), 0);

        drop(connection);
        link.send(vec![(GROUP, vec![3])]);
        link.send(vec![(GROUP, vec![4])]);
        link.down();
        assert_eq!(told(), 1);
        assert!(!link.is_up());
    }
}
