//! The members of a group. They are replicated state, changed through the log like the lock table.
//!
//! A [`Membership`] has the voters and the learners, their addresses, and the data directory of each node id. It is
//! part of every snapshot. Replicas that have applied the same entries have the same membership.
//!
//! # Invariants
//!
//! * An id is used once: the id of a new member is higher than all before. So `highest` distinguishes a removed node
//!   from a future one, without a list of removed nodes.
//! * A known directory does not change. A node that shows another directory under the same id was wiped, and has lost
//!   its votes and acknowledgements.
//! * At most one change of voters is under way. Between its two halves (`is_joint`), both the old and the new voters
//!   have to agree.

mod bytes;
mod change;
mod follow;

use std::collections::{BTreeMap, BTreeSet};

pub use self::bytes::MembershipBytesError;
pub(crate) use self::bytes::{Note, decode_addition, encode_addition};
pub(crate) use self::change::ChangeVerdict;
pub use self::change::{ChangeRefusal, MembershipChange};
use crate::id::{ClusterId, DirectoryId, NodeId};

/// Voters and learners. More of them would only make grants slower.
pub(crate) const MEMBERS_MAX: usize = 9;
pub(crate) const VOTERS_MAX: usize = 7;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Chosen by the first leader; none until then. It distinguishes two clusters with the same name.
    pub cluster: Option<ClusterId>,
    /// The highest id that was ever a member.
    pub highest: NodeId,
    pub configuration: Configuration,
    /// One for each node of the configuration.
    pub members: BTreeMap<NodeId, Member>,
}

/// The voters and the learners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    pub voters: BTreeSet<NodeId>,
    /// The old voters, while a change of voters is under way.
    pub outgoing: BTreeSet<NodeId>,
    pub learners: BTreeSet<NodeId>,
}

/// What is known about one member. An empty address means that it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    pub peer_address: String,
    pub client_address: String,
    /// None until the node has first connected.
    pub directory: Option<DirectoryId>,
    /// A learner that never becomes a voter. Other learners become voters once they have caught up.
    pub stays_learner: bool,
    /// The voter that it replaces.
    pub replaces: Option<NodeId>,
}

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Voter,
    /// It has the data, but no vote.
    Learner,
    /// It becomes a voter when the change under way is complete.
    Entering,
    /// It stops being a voter when the change under way is complete.
    Leaving,
}

impl Configuration {
    pub(crate) fn of_voters(voters: &[NodeId]) -> Configuration {
        Configuration { voters: voters.iter().copied().collect(), ..Configuration::default() }
    }

    /// A change of voters is half done.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub fn role(&self, node: NodeId) -> Option<Role> {
        let (is_voter, was_voter) = (self.voters.contains(&node), self.outgoing.contains(&node));
        match (is_voter, was_voter) {
            (true, false) if self.is_joint() => Some(Role::Entering),
            (true, _) => Some(Role::Voter),
            (false, true) => Some(Role::Leaving),
            (false, false) => self.learners.contains(&node).then_some(Role::Learner),
        }
    }

    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.voters.iter().chain(&self.outgoing).chain(&self.learners).copied().collect()
    }

    /// Whether the Raft library accepts the configuration.
    pub(crate) fn is_sound(&self) -> bool {
        let nodes = self.nodes();
        let voting = |node: &NodeId| self.voters.contains(node) || self.outgoing.contains(node);
        !self.voters.is_empty()
            && nodes.len() <= 2 * MEMBERS_MAX
            && !nodes.contains(&NodeId(0))
            && !self.learners.iter().any(voting)
    }
}

impl Membership {
    /// The members of a group whose log does not contain them yet.
    pub(crate) fn founded_by(voters: &[NodeId]) -> Membership {
        let mut membership = Membership::default();
        membership.set_configuration(Configuration::of_voters(voters));
        membership
    }

    pub fn is_member(&self, node: NodeId) -> bool {
        self.members.contains_key(&node)
    }

    /// The leader that still sends to this node, if the node is a member. A node that has left the group remembers the
    /// last leader that it knew, but gets nothing from it any more.
    pub fn heard_leader(&self, node: NodeId, known: Option<NodeId>) -> Option<NodeId> {
        known.filter(|_| self.is_member(node))
    }

    /// The node was a member once, and its id will never be one again.
    pub fn was_removed(&self, node: NodeId) -> bool {
        self.cluster.is_some() && node <= self.highest && !self.is_member(node)
    }

    pub fn role(&self, node: NodeId) -> Option<Role> {
        self.configuration.role(node)
    }

    /// Whether the first format of snapshots can express the membership.
    pub(crate) fn is_plain(&self) -> bool {
        self.cluster.is_none()
            && !self.configuration.is_joint()
            && self.configuration.learners.is_empty()
            && self.members.values().all(|member| *member == Member::default())
    }

    pub(crate) fn set_configuration(&mut self, configuration: Configuration) {
        let nodes = configuration.nodes();
        self.members.retain(|node, _| nodes.contains(node));
        for node in &nodes {
            self.members.entry(*node).or_default();
        }
        self.highest = nodes.last().copied().unwrap_or_default().max(self.highest);
        self.configuration = configuration;
    }

    /// Adds a node. The configuration is the one that consensus computed.
    pub(crate) fn add(&mut self, node: NodeId, member: Member, configuration: Configuration) {
        self.set_configuration(configuration);
        if let Some(known) = self.members.get_mut(&node) {
            *known = member;
        }
    }

    /// Applies a leader's note about members. If it names a node that never was a member, the id is used up.
    pub(crate) fn note(&mut self, note: &Note) {
        self.cluster = self.cluster.or(note.cluster);
        for (node, noted) in &note.members {
            let Some(known) = self.members.get_mut(node) else {
                self.highest = self.highest.max(*node);
                continue;
            };
            if !noted.peer_address.is_empty() {
                known.peer_address.clone_from(&noted.peer_address);
            }
            if !noted.client_address.is_empty() {
                known.client_address.clone_from(&noted.client_address);
            }
            known.directory = known.directory.or(noted.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids<const N: usize>(ids: [u64; N]) -> BTreeSet<NodeId> {
        ids.map(NodeId).into()
    }

    #[test]
    fn roles_show_the_phase_of_a_voter_change() {
        let mut now =
            Configuration { voters: ids([2, 3, 4]), outgoing: ids([1, 2, 3]), learners: ids([9]) };
        let roles = [1, 2, 4, 9, 7].map(|id| now.role(NodeId(id)));
        let expected = [Some(Role::Leaving), Some(Role::Voter), Some(Role::Entering)];
        assert_eq!(roles[..3], expected);
        assert_eq!(roles[3..], [Some(Role::Learner), None]);
        now.outgoing.clear();
        assert_eq!(now.role(NodeId(4)), Some(Role::Voter));
        assert_eq!(now.role(NodeId(1)), None);
    }

    #[test]
    fn a_removed_id_differs_from_one_that_was_never_a_member() {
        let mut group = Membership::founded_by(&[NodeId(1), NodeId(2), NodeId(3)]);
        group.note(&Note { cluster: Some(ClusterId([1; 16])), members: Vec::new() });
        group.set_configuration(Configuration::of_voters(&[NodeId(1), NodeId(3)]));
        assert!(group.was_removed(NodeId(2)));
        assert!(!group.was_removed(NodeId(4)) && !group.was_removed(NodeId(3)));
        group.set_configuration(Configuration::of_voters(&[NodeId(1)]));
        assert!(group.was_removed(NodeId(3)), "the highest is remembered");
    }

    #[test]
    fn a_known_directory_is_never_replaced() {
        let mut group = Membership::founded_by(&[NodeId(1)]);
        for directory in [[1; 16], [2; 16]] {
            let member = Member { directory: Some(DirectoryId(directory)), ..Member::default() };
            group.note(&Note { cluster: None, members: vec![(NodeId(1), member)] });
        }
        assert_eq!(group.members[&NodeId(1)].directory, Some(DirectoryId([1; 16])));
    }
}
