//! Who leads each group, as this node knows it: set by the shard, read by the rest of the node.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_replica::{GroupId, Leadership};
use tokio::sync::watch;

/// The shard's end.
#[derive(Debug)]
pub(crate) struct Leaderships(BTreeMap<GroupId, watch::Sender<Leadership>>);

/// The rest of the node's end. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LeadershipWatch {
    root: watch::Receiver<Leadership>,
    others: Arc<BTreeMap<GroupId, watch::Receiver<Leadership>>>,
}

impl Leaderships {
    pub(crate) fn new(groups: impl IntoIterator<Item = GroupId>) -> (Leaderships, LeadershipWatch) {
        let root = watch::Sender::new(Leadership::default());
        let others = groups.into_iter().filter(|group| *group != GroupId::FIRST);
        let mut senders: BTreeMap<_, _> =
            others.map(|group| (group, watch::Sender::new(Leadership::default()))).collect();
        let receivers = senders.iter().map(|(group, sender)| (*group, sender.subscribe()));
        let others = Arc::new(receivers.collect());
        let watch = LeadershipWatch { root: root.subscribe(), others };
        senders.insert(GroupId::FIRST, root);
        (Leaderships(senders), watch)
    }

    pub(crate) fn set(&self, group: GroupId, leadership: Leadership) {
        if let Some(sender) = self.0.get(&group) {
            sender.send_replace(leadership);
        }
    }
}

/// Of a node with one group.
impl From<watch::Receiver<Leadership>> for LeadershipWatch {
    fn from(root: watch::Receiver<Leadership>) -> LeadershipWatch {
        LeadershipWatch { root, others: Arc::default() }
    }
}

impl LeadershipWatch {
    /// Of one group. A group that this node does not run never has a leader.
    pub(crate) fn of(&self, group: GroupId) -> Option<&watch::Receiver<Leadership>> {
        if group == GroupId::FIRST { Some(&self.root) } else { self.others.get(&group) }
    }

    /// Of the root group.
    pub(crate) fn root(&self) -> &watch::Receiver<Leadership> {
        &self.root
    }

    /// All groups, the root group first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &watch::Receiver<Leadership>> {
        std::iter::once(&self.root).chain(self.others.values())
    }

    /// The shard's end is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.root.has_changed().is_err()
    }
}
