//! The nodes that this one has met, and what they said of themselves.

use std::collections::BTreeMap;

use holdfast_replica::{Member, Membership, NodeId};

/// From this version of the log on, members are in it.
pub(crate) const MEMBERS_SINCE: u32 = 1;
/// From this one on, so is how far events are published.
pub(crate) const PUBLICATION_SINCE: u32 = 2;

/// More than there can be members.
const INTRODUCED_MAX: usize = 64;

/// The leader writes down in the log who was met, but not before every member is known to read such entries: in an
/// upgrade, node by node, the older ones could not.
#[derive(Debug, Default)]
pub(crate) struct PeerRegistry {
    /// With whether it was the node itself that said so.
    news: BTreeMap<NodeId, (Member, bool)>,
    /// The newest version of log entries that each can read.
    reads: BTreeMap<NodeId, u32>,
}

impl PeerRegistry {
    /// A node told who it is.
    pub(crate) fn met(&mut self, node: NodeId, member: Member, log_version: u32) {
        if self.reads.len() < INTRODUCED_MAX && self.news.len() < INTRODUCED_MAX {
            self.reads.insert(node, log_version);
            self.news.insert(node, (member, true));
        }
    }

    /// The configuration says where a node is.
    pub(crate) fn configured(&mut self, node: NodeId, member: Member) {
        self.news.insert(node, (member, false));
    }

    pub(crate) fn all_read(&self, membership: &Membership, version: u32) -> bool {
        let reads = |node| self.reads.get(node).is_some_and(|reads| *reads >= version);
        membership.members.keys().all(reads)
    }

    /// What the groups have not heard yet.
    pub(crate) fn take_news(&mut self) -> BTreeMap<NodeId, (Member, bool)> {
        std::mem::take(&mut self.news)
    }
}
