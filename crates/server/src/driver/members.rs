//! What the driver has to do with who belongs to the cluster.

use std::collections::BTreeMap;

use holdfast_replica::{GroupId, Member, Membership, MembershipChange, NodeId, Replica};
use tokio::sync::oneshot;

use super::Driver;
use super::inbox::{ChangeAnswer, Delivery, Unavailable};
/// From this version of the log on, members are in it.
const MEMBERS_SINCE: u32 = 1;
/// From this one on, so is how far events are published.
const PUBLICATION_SINCE: u32 = 2;

/// More than there can be members.
const INTRODUCED_MAX: usize = 64;

/// Who was met, and what it said of itself. The leader writes it down in the log, but not before every
/// member is known to read such entries: in an upgrade, node by node, the older ones could not.
#[derive(Debug, Default)]
pub(super) struct Introductions {
    /// With whether it was the node itself that said so.
    news: BTreeMap<NodeId, (Member, bool)>,
    /// The newest version of log entries that each can read.
    reads: BTreeMap<NodeId, u32>,
}

impl Introductions {
    /// A node told who it is.
    pub(super) fn met(&mut self, node: NodeId, member: Member, log_version: u32) {
        if self.reads.len() < INTRODUCED_MAX && self.news.len() < INTRODUCED_MAX {
            self.reads.insert(node, log_version);
            self.news.insert(node, (member, true));
        }
    }

    /// The configuration says where a node is.
    pub(super) fn configured(&mut self, node: NodeId, member: Member) {
        self.news.insert(node, (member, false));
    }

    fn all_read(&self, membership: &Membership, version: u32) -> bool {
        let reads = |node| self.reads.get(node).is_some_and(|reads| *reads >= version);
        membership.members.keys().all(reads)
    }
}

impl Driver {
    /// Passes on who was met, if all members can read it in the log.
    pub(super) fn introduce(&mut self) {
        if self.all_members_read(MEMBERS_SINCE) {
            self.introduce_anyway();
        }
    }

    /// Can all members read what says how far events are published? If it is in the log, they must.
    pub(super) fn may_publish(&self) -> bool {
        let published = |replica: &Replica| replica.table().publication().is_some();
        self.replicas.values().all(published) || self.all_members_read(PUBLICATION_SINCE)
    }

    fn all_members_read(&self, version: u32) -> bool {
        let mut memberships = self.replicas.values().map(Replica::membership);
        memberships.all(|membership| self.introductions.all_read(membership, version))
    }

    /// An operator who changes the membership knows that all nodes can.
    fn introduce_anyway(&mut self) {
        for (node, (member, in_its_own_words)) in std::mem::take(&mut self.introductions.news) {
            for replica in self.replicas.values_mut() {
                replica.introduce(node, member.clone(), in_its_own_words);
            }
        }
    }

    pub(super) fn change_membership(
        &mut self,
        group: GroupId,
        change: MembershipChange,
        reply: oneshot::Sender<ChangeAnswer>,
    ) {
        if self.stop_by.is_some() {
            let _ = reply.send(Err(Unavailable::ShuttingDown));
            return;
        }
        self.introduce_anyway();
        match self.replicas.get_mut(&group) {
            Some(replica) => replica.propose_membership(self.callers.change(reply), change),
            None => drop(reply.send(Err(Unavailable::NotLeader { leader: None }))),
        }
    }

    pub(super) fn members_changed(&mut self, index: u64, members: Membership) {
        let me = self.membership.me;
        let roles = members.members.keys().map(|node| (node.0, members.role(*node)));
        tracing::info!(members = ?roles.collect::<Vec<_>>(), "membership");
        self.removed |= members.was_removed(me);
        let before = self.membership.client_addresses();
        self.membership.elects(index, &members.configuration);
        self.membership.publish(members);
        if self.membership.client_addresses() != before {
            self.streams.tell_all(|| Delivery::MembersChanged);
        }
        self.introduce();
    }
}
