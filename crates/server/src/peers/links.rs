//! The shard's side of the peers: hand over and forget.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_replica::{GroupId, Membership as Replicated, NodeId};
use mio::Interest;
use mio::net::TcpStream as WireSocket;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::handshake::Peer;
use super::snapshot_out::SnapshotSender;
use super::wire::{ConnectionTicket, Messages, NotSent, WireOut};
use super::{Handshake, dial};
use crate::config::Address;
use crate::shard::{Input, ROOM, ShardHandle};

/// More than there are members at any time, with room for some who are yet to be known.
const LINKS_MAX: usize = 32;
const MEETINGS_MAX: usize = 32;

/// Every other node, as the shard sends to it. Cheap to clone; no method waits, and each may be
/// called from any thread.
#[derive(Clone, Debug)]
pub(crate) struct PeerLinks {
    me: NodeId,
    links: Arc<Mutex<BTreeMap<NodeId, Arc<Link>>>>,
    /// Nodes that dialled us and that the membership does not know yet.
    met: mpsc::Sender<(NodeId, String)>,
    snapshots: SnapshotSender,
}

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

impl PeerLinks {
    /// Begins to dial every other node, in a task of the given set, and follows the membership from then
    /// on. Call it within the runtime.
    pub(crate) fn start(
        handshake: &Arc<Handshake>,
        shard: &ShardHandle,
        tasks: &mut JoinSet<()>,
    ) -> PeerLinks {
        let snapshots = SnapshotSender::new(Arc::clone(handshake), shard.clone());
        let (met, meetings) = mpsc::channel(MEETINGS_MAX);
        let me = handshake.membership.me;
        let links = PeerLinks { me, links: Arc::default(), met, snapshots };
        let keeper = LinkKeeper {
            links: links.clone(),
            handshake: Arc::clone(handshake),
            shard: shard.clone(),
            dialling: BTreeMap::new(),
            tasks: JoinSet::new(),
        };
        tasks.spawn(keeper.run(meetings));
        links
    }

    /// Sends the messages, at once if the socket has room. If they do not fit, or there is no connection,
    /// they are dropped and the shard hears [`Input::PeerUnreachable`].
    pub(crate) fn send(&self, to: NodeId, messages: Vec<(GroupId, Vec<u8>)>) {
        let link = self.lock().get(&to).cloned();
        match link {
            Some(link) => link.send(&messages),
            None => tracing::debug!(%to, "messages for a node whose address is not known"),
        }
    }

    /// Some wire has room again, or has ended.
    pub(crate) fn look_after(&self) {
        let links: Vec<Arc<Link>> = self.lock().values().cloned().collect();
        for link in links {
            link.look_after();
        }
    }

    /// Sends a message that carries a snapshot, on a connection of its own. How it went comes as
    /// [`Input::SnapshotSent`].
    pub(crate) fn send_snapshot(&self, to: NodeId, group: GroupId, message: Vec<u8>) {
        self.snapshots.send(to, group, message);
    }

    /// Whether the connection to the node is up. To itself a node is always connected.
    pub(crate) fn reachable(&self, node: NodeId) -> bool {
        node == self.me || self.lock().get(&node).is_some_and(|link| link.is_up())
    }

    /// By which the node knows this one. None if they are not connected.
    pub(crate) fn ticket(&self, node: NodeId) -> Option<ConnectionTicket> {
        let link = self.lock().get(&node).cloned()?;
        *link.ticket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node dialled us from this address. If it is not known otherwise, it is dialled back there.
    pub(super) fn meet(&self, node: NodeId, address: &str) {
        let is_known = self.lock().contains_key(&node);
        if !is_known && !address.is_empty() {
            // It dials again, and is met again, if there is no room now.
            let _ = self.met.try_send((node, address.to_owned()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dials those who are members, and drops those who are none any more.
struct LinkKeeper {
    links: PeerLinks,
    handshake: Arc<Handshake>,
    shard: ShardHandle,
    /// At which address, and the task that does it.
    dialling: BTreeMap<NodeId, (String, AbortHandle)>,
    tasks: JoinSet<()>,
}

impl LinkKeeper {
    async fn run(mut self, mut meetings: mpsc::Receiver<(NodeId, String)>) {
        let mut membership = self.handshake.membership.watch();
        loop {
            let now = Arc::clone(&membership.borrow_and_update());
            self.follow(&now);
            tokio::select! {
                changed = membership.changed() => if changed.is_err() { return },
                Some((node, address)) = meetings.recv() => {
                    if !self.dialling.contains_key(&node) && self.dialling.len() < LINKS_MAX {
                        self.dial(node, address);
                    }
                }
            }
        }
    }

    fn follow(&mut self, now: &Replicated) {
        let removed: Vec<NodeId> =
            self.dialling.keys().copied().filter(|node| now.was_removed(*node)).collect();
        for node in removed {
            self.drop_link(node);
        }
        for (node, member) in &now.members {
            let address = &member.peer_address;
            let is_dialled = self.dialling.get(node).is_some_and(|(at, _)| at == address);
            if *node != self.links.me && !address.is_empty() && !is_dialled {
                self.drop_link(*node);
                self.dial(*node, address.clone());
            }
        }
    }

    fn dial(&mut self, node: NodeId, address: String) {
        let Ok(checked) = Address::new(&address) else {
            tracing::error!(%node, address, "the membership has an address that is none");
            return;
        };
        let link = Arc::new(Link::new(node, self.shard.clone()));
        let dialling = dial::keep_dialled(Arc::clone(&link), checked, Arc::clone(&self.handshake));
        let task = self.tasks.spawn(dialling);
        self.links.lock().insert(node, link);
        self.dialling.insert(node, (address, task));
    }

    fn drop_link(&mut self, node: NodeId) {
        if let Some((address, task)) = self.dialling.remove(&node) {
            tracing::info!(%node, address, "dropped the connection");
            task.abort();
            self.links.lock().remove(&node);
        }
    }
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

    fn look_after(&self) {
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
    pub(super) fn up(&self, mut socket: WireSocket) -> std::io::Result<()> {
        let registry = self.shard.waker().registry();
        registry.register(&mut socket, ROOM, Interest::WRITABLE | Interest::READABLE)?;
        *self.lock() = Some(WireOut::new(socket));
        Ok(())
    }

    /// The exchange is open.
    pub(super) fn set_ticket(&self, ticket: Option<ConnectionTicket>) {
        *self.ticket.lock().unwrap_or_else(PoisonError::into_inner) = ticket;
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
        let told = self.shard.send(Input::PeerUnreachable(self.node)).is_ok();
        self.unreachable_reported.store(told, Ordering::Relaxed);
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

    use super::*;
    use crate::testing::inbox;

    const GROUP: GroupId = GroupId(1);

    #[test]
    fn a_lost_connection_is_reported_once_until_messages_go_through_again() {
        let (shard, mut inputs, _leadership) = inbox();
        let link = Link::new(NodeId(2), shard);
        let mut told =
            || inputs.waiting().filter(|i| matches!(i, Input::PeerUnreachable(_))).count();

        for _ in 0..3 {
            link.send(&vec![(GROUP, vec![1])]);
        }
        assert_eq!(told(), 1);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = WireSocket::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        link.up(socket).unwrap();
        link.send(&vec![(GROUP, vec![2])]);
        assert_eq!(told(), 0);

        drop(peer);
        while link.is_up() {
            // The system says so at a later sending than the first.
            link.send(&vec![(GROUP, vec![3])]);
        }
        link.send(&vec![(GROUP, vec![4])]);
        link.down();
        assert_eq!(told(), 1);
    }
}
