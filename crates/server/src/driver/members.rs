//! What the driver has to do with who belongs to the cluster.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_replica::{GroupId, Member, Membership, MembershipChange, NodeId};
use tokio::sync::oneshot;

use super::Driver;
use super::inbox::{ChangeAnswer, Delivery, Unavailable};
use crate::peers::LOG_VERSION;

/// More than there can be members.
const INTRODUCED_MAX: usize = 64;

/// Who was met, and what it said of itself. The leader writes it down in the log, but not before every
/// member is known to read such entries: in an upgrade, node by node, the older ones could not.
#[derive(Debug, Default)]
pub(super) struct Introductions {
    /// With whether it was the node itself that said so.
    news: BTreeMap<NodeId, (Member, bool)>,
    able: BTreeSet<NodeId>,
}

impl Introductions {
    /// A node told who it is.
    pub(super) fn met(&mut self, node: NodeId, member: Member, log_version: u32) {
        if self.able.len() < INTRODUCED_MAX && self.news.len() < INTRODUCED_MAX {
            if log_version >= LOG_VERSION {
                self.able.insert(node);
            }
            self.news.insert(node, (member, true));
        }
    }

    /// The configuration says where a node is.
    pub(super) fn configured(&mut self, node: NodeId, member: Member) {
        self.news.insert(node, (member, false));
    }

    fn all_are_able(&self, membership: &Membership) -> bool {
        membership.members.keys().all(|node| self.able.contains(node))
    }
}

impl Driver {
    /// Passes on who was met, if all members can read it in the log.
    pub(super) fn introduce(&mut self) {
        let introductions = &mut self.introductions;
        let all_are_able = |membership: &Membership| introductions.all_are_able(membership);
        if !self.replicas.values().all(|replica| all_are_able(replica.membership())) {
            return;
        }
        self.introduce_anyway();
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

    pub(super) fn members_changed(&mut self, members: Membership) {
        let me = self.membership.me;
        let roles = members.members.keys().map(|node| (node.0, members.role(*node)));
        tracing::info!(members = ?roles.collect::<Vec<_>>(), "membership");
        self.removed |= members.was_removed(me);
        let before = self.membership.client_addresses();
        self.membership.publish(members);
        if self.membership.client_addresses() != before {
            self.streams.tell_all(|| Delivery::MembersChanged);
        }
        self.introduce();
    }
}
