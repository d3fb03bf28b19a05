//! The nodes with which this one has had a handshake, and what they reported about themselves.

use std::collections::BTreeMap;

use holdfast_replica::{Member, Membership, NodeId};

/// The first version of log entries that contain members.
pub(crate) const MEMBERS_SINCE: u32 = 1;
/// The first version of log entries that contain the publication of events.
pub(crate) const PUBLICATION_SINCE: u32 = 2;

/// More than there can be members.
const PEERS_MAX: usize = 64;

/// The leader records these nodes in the log, but only when every member is known to read such entries. During a
/// rolling upgrade the older nodes cannot.
#[derive(Debug, Default)]
pub(crate) struct PeerRegistry {
    /// What the groups do not know yet, and whether the node itself reported it.
    unreported: BTreeMap<NodeId, (Member, bool)>,
    /// The newest version of log entries that each can read.
    reads: BTreeMap<NodeId, u32>,
}

impl PeerRegistry {
    /// A node reported who it is.
    pub(crate) fn identify(&mut self, node: NodeId, member: Member, log_version: u32) {
        if self.reads.len() < PEERS_MAX && self.unreported.len() < PEERS_MAX {
            self.reads.insert(node, log_version);
            self.unreported.insert(node, (member, true));
        }
    }

    /// The configuration file has the addresses of a node.
    pub(crate) fn configure(&mut self, node: NodeId, member: Member) {
        self.unreported.insert(node, (member, false));
    }

    pub(crate) fn all_support(&self, membership: &Membership, version: u32) -> bool {
        let reads = |node| self.reads.get(node).is_some_and(|reads| *reads >= version);
        membership.members.keys().all(reads)
    }

    /// Takes what the groups do not know yet.
    pub(crate) fn take_unreported(&mut self) -> BTreeMap<NodeId, (Member, bool)> {
        std::mem::take(&mut self.unreported)
    }
}
