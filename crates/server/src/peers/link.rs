//! The connection to one other node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_replica::NodeId;
use mio::Interest;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::handshake::Peer;
use super::wire::{ConnectionTicket, Messages, NotSent, WireOut};
use crate::inbox::{Input, ROOM, ShardHandle};
use crate::transport::ByteStream;

/// One other node.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: NodeId,
    shard: ShardHandle,
    /// Of the connection that is up, if one is.
    wire: Mutex<Option<WireOut>>,
    /// Of the exchange that is open, if one is.
    ticket: Mutex<Option<ConnectionTicket>>,
    /// The shard found that the wire broke.
    broken: Notify,
    /// The shard knows that messages get lost; said again only after some went through.
    unreachable_reported: AtomicBool,
}

impl Link {
    pub(super) fn new(node: NodeId, shard: ShardHandle) -> Link {
        Link {
            node,
            shard,
            wire: Mutex::new(None),
            ticket: Mutex::new(None),
            broken: Notify::new(),
            unreachable_reported: AtomicBool::new(false),
        }
    }

    pub(super) fn send(&self, messages: &Messages) {
        self.using_wire(|wire| wire.send(messages));
    }

    pub(super) fn look_after(&self) {
        if self.is_up() {
            self.using_wire(|wire| {
                wire.check().map_err(NotSent::Broken)?;
                wire.send(&Vec::new())
            });
        }
    }

    fn using_wire(&self, work: impl FnOnce(&mut WireOut) -> Result<(), NotSent>) {
        let mut wire = self.lock();
        let done = match &mut *wire {
            Some(wire) => work(wire),
            None => Err(NotSent::Full),
        };
        if let Err(NotSent::Broken(error)) = &done {
            tracing::debug!(node = %self.node, %error, "the wire to a peer broke");
            *wire = None;
            self.broken.notify_one();
        }
        drop(wire);
        match done {
            Ok(()) => self.unreachable_reported.store(false, Ordering::Relaxed),
            Err(_) => self.report_unreachable(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.lock().is_some()
    }

    /// The shard hears of it when the socket has room, or has ended.
    pub(super) fn up(&self, mut stream: Box<dyn ByteStream>) -> std::io::Result<()> {
        let registry = self.shard.waker().registry();
        registry.register(&mut stream, ROOM, Interest::WRITABLE | Interest::READABLE)?;
        *self.lock() = Some(WireOut::new(stream));
        Ok(())
    }

    /// The exchange is open.
    pub(super) fn set_ticket(&self, ticket: Option<ConnectionTicket>) {
        *self.ticket.lock().unwrap_or_else(PoisonError::into_inner) = ticket;
    }

    pub(super) fn ticket(&self) -> Option<ConnectionTicket> {
        *self.ticket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was not sent is lost.
    pub(super) fn down(&self) {
        self.set_ticket(None);
        if self.lock().take().is_some() {
            self.report_unreachable();
        }
    }

    /// Returns when the shard finds that the wire broke.
    pub(super) async fn broken(&self) {
        // What was said of the wire before does not count.
        while self.is_up() {
            self.broken.notified().await;
        }
    }

    /// Nothing listens at the node's port. The next attempt says it again.
    pub(super) fn report_refused(&self) {
        let _ = self.shard.send(Input::PeerRefuses(self.node));
    }

    /// What the node says of itself, for the membership.
    pub(super) async fn identify(&self, peer: Peer) {
        identify_peer(&self.shard, peer).await;
    }

    /// The node says that this one was removed from the cluster.
    pub(super) async fn report_removed(&self) {
        send_input(&self.shard, || Input::RemovedBy(self.node)).await;
    }

    /// If the shard's inbox is full the next loss tells it.
    fn report_unreachable(&self) {
        if self.unreachable_reported.load(Ordering::Relaxed) {
            return;
        }
        let reported = self.shard.send(Input::PeerUnreachable(self.node)).is_ok();
        self.unreachable_reported.store(reported, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<WireOut>> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the shard who a peer is. It is said once per connection, so it waits for room.
pub(super) async fn identify_peer(shard: &ShardHandle, peer: Peer) {
    let Peer { node, member, log_version } = peer;
    send_input(shard, || Input::PeerIdentified { node, member: member.clone(), log_version }).await;
}

async fn send_input(shard: &ShardHandle, input: impl Fn() -> Input) {
    const PAUSE: Duration = Duration::from_millis(5);
    while shard.send(input()).is_err() && !shard.is_gone() {
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use holdfast_replica::GroupId;

    use super::*;
    use crate::testing::inbox;

    const GROUP: GroupId = GroupId(1);

    #[test]
    fn a_lost_connection_is_reported_once_until_messages_go_through_again() {
        let (shard, mut inputs, _leadership) = inbox();
        let link = Link::new(NodeId(2), shard);
        let mut reported =
            || inputs.waiting().filter(|i| matches!(i, Input::PeerUnreachable(_))).count();

        for _ in 0..3 {
            link.send(&vec![(GROUP, vec![1])]);
        }
        assert_eq!(reported(), 1);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = mio::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        link.up(Box::new(socket)).unwrap();
        link.send(&vec![(GROUP, vec![2])]);
        assert_eq!(reported(), 0);

        drop(peer);
        while link.is_up() {
            // The system says so at a later sending than the first.
            link.send(&vec![(GROUP, vec![3])]);
        }
        link.send(&vec![(GROUP, vec![4])]);
        link.down();
        assert_eq!(reported(), 1);
    }
}
