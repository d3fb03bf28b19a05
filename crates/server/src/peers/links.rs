//! The connections over which the shard sends to its peers. The shard hands messages over, and never waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_replica::{GroupId, Membership as Replicated, NodeId};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::link::Link;
use super::snapshot_out::SnapshotSender;
use super::wire::ConnectionTicket;
use super::{Handshake, dial};
use crate::config::Address;
use crate::inbox::ShardHandle;
use crate::transport::{PeerConnector, Transport};

/// How many nodes are dialled at most: more than a membership has, with room for nodes that it does not know yet.
const LINKS_MAX: usize = 32;
const MEETINGS_MAX: usize = 32;

/// The connections to all other nodes. Cheap to clone. No method waits, and any thread may call it.
#[derive(Clone, Debug)]
pub(crate) struct PeerLinks {
    me: NodeId,
    links: Arc<Mutex<BTreeMap<NodeId, Arc<Link>>>>,
    /// Nodes that dialled this one and that the membership does not know yet, with their addresses.
    met: mpsc::Sender<(NodeId, String)>,
    snapshots: SnapshotSender,
    transport: Transport,
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
        let transport = handshake.transport.clone();
        let links = PeerLinks { me, links: Arc::default(), met, snapshots, transport };
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

    /// Sends the messages, at once if the socket has room. If too many bytes wait already, or the connection is down,
    /// they are dropped, and the shard gets [`Input::PeerUnreachable`]. Messages for a node whose address is not known
    /// are dropped without a report.
    pub(crate) fn send(&self, to: NodeId, messages: Vec<(GroupId, Vec<u8>)>) {
        let link = self.lock().get(&to).cloned();
        match link {
            Some(link) => link.send(&messages),
            None => tracing::debug!(%to, "messages for a node whose address is not known"),
        }
    }

    /// Call it when the socket of some connection has room again or has ended. Sends what waits, and notes the ends.
    pub(crate) fn look_after(&self) {
        let links: Vec<Arc<Link>> = self.lock().values().cloned().collect();
        for link in links {
            link.look_after();
        }
    }

    /// Sends a message that carries a snapshot, on a connection of its own. The shard gets the result as
    /// [`Input::SnapshotSent`].
    pub(crate) fn send_snapshot(&self, to: NodeId, group: GroupId, message: Vec<u8>) {
        self.snapshots.send(to, group, message);
    }

    /// Whether the connection to the node is up. To itself a node is always connected.
    pub(crate) fn reachable(&self, node: NodeId) -> bool {
        node == self.me || self.lock().get(&node).is_some_and(|link| link.is_up())
    }

    /// Connects to the node for calls, such as forwarded requests.
    pub(crate) fn connector(&self, node: NodeId, address: &Address) -> PeerConnector {
        self.transport.connector(node, address)
    }

    /// The ticket that identifies this node to the other one. It goes with each forwarded action. `None` if the two are
    /// not connected.
    pub(crate) fn ticket(&self, node: NodeId) -> Option<ConnectionTicket> {
        self.lock().get(&node)?.ticket()
    }

    /// A node dialled this one and named this address as its own. If this node does not know it, it dials that address.
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

/// Dials the members, and drops the connections to nodes that were removed.
struct LinkKeeper {
    links: PeerLinks,
    handshake: Arc<Handshake>,
    shard: ShardHandle,
    /// The nodes that are dialled: at which address, and the task that keeps the connection up.
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
            tracing::error!(%node, address, "the membership has an invalid address");
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
