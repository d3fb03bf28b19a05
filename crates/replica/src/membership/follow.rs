//! How the members of a group become those of the root group, in a cluster with several groups.
//!
//! The root group decides about the members. The leader of each other group brings its group there by itself, from its own
//! node's copy of the root group's membership (`replica/follow_members.rs`). That copy may be old, and does no harm:
//!
//! * A node that the root group has removed is never a member again. So a removal is right, however old the copy is.
//! * Nodes are added in the order of their ids, as in the root group. A copy that has a node has all members with lower ids.
//!   So no member is left out, whose id would then be used up in the group.
//! * If an old copy adds a node that is removed meanwhile, a newer copy removes it.

use std::collections::BTreeSet;

use super::{ChangeVerdict, Member, Membership, MembershipChange, Role};
use crate::id::NodeId;

impl Membership {
    /// The changes that bring this membership closer to that of the root group. The first one that is possible now
    /// should be made.
    pub(crate) fn changes_toward(&self, root: &Membership) -> Vec<MembershipChange> {
        let remove = |node: NodeId| MembershipChange::Remove { node };
        // A change of voters that has begun is never taken back. The removed node may not hear of its end.
        let is_leaving =
            |node: NodeId| root.cluster.is_some() && root.role(node) == Some(Role::Leaving);
        let is_gone = |node: &NodeId| root.was_removed(*node) || is_leaving(*node);
        // As long as it is on its way to a vote, no other change is possible.
        let given_up = self.on_its_way().filter(is_gone).map(remove);
        let added = self.next_member_of(root).map(|(node, member)| {
            let is_voter = |node: &NodeId| self.role(*node) == Some(Role::Voter);
            let replaces = member.replaces.filter(is_voter);
            MembershipChange::Add { node, member: Member { replaces, ..member.clone() } }
        });
        let promoted = self.configuration.learners.iter().filter(|node| {
            let stays = self.members.get(node).is_some_and(|member| member.stays_learner);
            stays && root.role(**node) == Some(Role::Voter)
        });
        let promoted = promoted.map(|node| MembershipChange::Promote { node: *node });
        let removed = self.members.keys().copied().filter(is_gone).map(remove);
        given_up.into_iter().chain(added).chain(promoted).chain(removed).collect()
    }

    /// The highest id that the root group has used, if this group must note that it is used up: the node was removed from
    /// the root group before this group had it.
    pub(crate) fn id_to_retire(&self, root: &Membership) -> Option<NodeId> {
        let is_used_up = root.was_removed(root.highest)
            && root.highest > self.highest
            && self.next_member_of(root).is_none();
        is_used_up.then_some(root.highest)
    }

    /// The member of the root group with the lowest id that this group has not had.
    fn next_member_of<'a>(&self, root: &'a Membership) -> Option<(NodeId, &'a Member)> {
        let mut new = root.members.iter().filter(|(node, _)| **node > self.highest);
        new.next().map(|(node, member)| (*node, member))
    }

    /// The nodes about which this group and the root group differ.
    pub fn differences(&self, root: &Membership) -> BTreeSet<NodeId> {
        let nodes = self.members.keys().chain(root.members.keys()).copied();
        let used = (self.highest != root.highest).then_some(self.highest.max(root.highest));
        nodes.filter(|node| self.role(*node) != root.role(*node)).chain(used).collect()
    }

    /// Whether the membership is as the change wants it.
    pub fn is_as_wanted(&self, change: &MembershipChange) -> bool {
        self.judge(change) == Ok(ChangeVerdict::Already)
    }

    /// As [`Membership::is_as_wanted`], of a group that follows the root group, which has made the change.
    pub fn has_followed(&self, change: &MembershipChange) -> bool {
        match change {
            // It may have been removed again.
            MembershipChange::Add { node, .. } => *node <= self.highest,
            MembershipChange::Promote { node } => {
                self.role(*node) == Some(Role::Voter) || self.was_removed(*node)
            }
            MembershipChange::Remove { node } => self.was_removed(*node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ClusterId;
    use crate::membership::{Configuration, Note};

    fn member(node: u64) -> Member {
        Member {
            peer_address: format!("h{node}:7421"),
            client_address: format!("h{node}:7420"),
            ..Member::default()
        }
    }

    fn founded() -> Membership {
        let mut group = Membership::founded_by(&[1, 2, 3].map(NodeId));
        for (node, known) in &mut group.members {
            *known = member(node.0);
        }
        group.cluster = Some(ClusterId([1; 16]));
        group
    }

    fn configured(group: &mut Membership, voters: &[u64], learners: &[u64]) {
        let voters: Vec<NodeId> = voters.iter().copied().map(NodeId).collect();
        let mut configuration = Configuration::of_voters(&voters);
        configuration.learners = learners.iter().copied().map(NodeId).collect();
        group.set_configuration(configuration);
    }

    fn add(group: &mut Membership, node: u64, member: Member) {
        let mut configuration = group.configuration.clone();
        configuration.learners.insert(NodeId(node));
        group.add(NodeId(node), member, configuration);
    }

    /// Carries out, as the log would, the first change that is allowed.
    fn step(group: &mut Membership, root: &Membership) -> Option<MembershipChange> {
        let changes = group.changes_toward(root);
        let is_allowed =
            |change: &&MembershipChange| group.judge(change) == Ok(ChangeVerdict::Propose);
        let change = changes.iter().find(is_allowed)?.clone();
        match &change {
            MembershipChange::Add { node, member } => add(group, node.0, member.clone()),
            MembershipChange::Promote { node } => promote(group, *node),
            MembershipChange::Remove { node } => {
                let mut configuration = group.configuration.clone();
                configuration.voters.remove(node);
                configuration.learners.remove(node);
                group.set_configuration(configuration);
            }
        }
        Some(change)
    }

    fn promote(group: &mut Membership, node: NodeId) {
        let mut configuration = group.configuration.clone();
        configuration.voters = group.voters_with(node);
        configuration.learners.remove(&node);
        group.set_configuration(configuration);
    }

    /// Until nothing is left to do; learners on their way get their votes.
    fn follow(group: &mut Membership, root: &Membership) {
        for _ in 0..100 {
            if let Some(node) = group.on_its_way()
                && !root.was_removed(node)
            {
                promote(group, node);
            } else if let Some(node) = group.id_to_retire(root) {
                group.note(&Note { cluster: None, members: vec![(node, Member::default())] });
            } else if step(group, root).is_none() {
                return;
            }
        }
        panic!("it never ends: {group:?}");
    }

    #[test]
    fn a_group_follows_additions_promotions_and_removals() {
        let (mut root, mut group) = (founded(), founded());
        assert_eq!(group.changes_toward(&root), []);
        add(&mut root, 4, member(4));
        assert_eq!(group.differences(&root), [NodeId(4)].into());
        let added = MembershipChange::Add { node: NodeId(4), member: member(4) };
        assert_eq!(group.changes_toward(&root), std::slice::from_ref(&added));
        assert!(root.is_as_wanted(&added) && !group.has_followed(&added));
        step(&mut group, &root);
        assert!(group.has_followed(&added) && group.differences(&root).is_empty());
        let learner = Member { stays_learner: true, ..member(5) };
        promote(&mut root, NodeId(4));
        add(&mut root, 5, learner);
        promote(&mut root, NodeId(5));
        configured(&mut root, &[2, 3, 4, 5], &[]);
        follow(&mut group, &root);
        assert_eq!((&group, group.differences(&root)), (&root, BTreeSet::new()));
    }

    #[test]
    fn nodes_are_added_in_the_order_of_their_ids_even_if_the_first_is_refused() {
        let (mut root, mut group) = (founded(), founded());
        // In this group, node 3 still has the address that node 4 has got.
        configured(&mut root, &[1, 2], &[]);
        add(&mut root, 4, Member { stays_learner: true, ..member(3) });
        add(&mut root, 5, Member { stays_learner: true, ..member(5) });
        let first = step(&mut group, &root);
        assert_eq!(first, Some(MembershipChange::Remove { node: NodeId(3) }));
        let second = step(&mut group, &root);
        assert!(matches!(second, Some(MembershipChange::Add { node: NodeId(4), .. })));
        follow(&mut group, &root);
        assert_eq!(group.differences(&root), BTreeSet::new());
    }

    #[test]
    fn a_node_takes_the_place_of_another_in_each_group() {
        let (mut root, mut group) = (founded(), founded());
        add(&mut root, 4, Member { replaces: Some(NodeId(2)), ..member(4) });
        promote(&mut root, NodeId(4));
        assert!(root.was_removed(NodeId(2)));
        step(&mut group, &root);
        assert_eq!(
            group.replaced_by(NodeId(4)),
            Some(NodeId(2)),
            "in one step, as in the root group"
        );
        follow(&mut group, &root);
        assert_eq!(group.configuration, root.configuration);

        // A group that has removed the old node already only adds the new one.
        let mut group = founded();
        configured(&mut group, &[1, 3], &[]);
        follow(&mut group, &root);
        assert_eq!(group.configuration, root.configuration);
    }

    #[test]
    fn a_node_that_was_given_up_is_removed_before_anything_else() {
        let (mut root, mut group) = (founded(), founded());
        add(&mut group, 4, member(4));
        add(&mut root, 4, member(4));
        configured(&mut root, &[1, 2], &[]);
        let given_up = Some(MembershipChange::Remove { node: NodeId(4) });
        assert_eq!(step(&mut group, &root), given_up);
        assert_eq!(step(&mut group, &root), Some(MembershipChange::Remove { node: NodeId(3) }));
        assert_eq!(step(&mut group, &root), None);
    }

    #[test]
    fn an_id_that_the_root_group_gave_up_is_used_up_in_each_group() {
        let (mut root, mut group) = (founded(), founded());
        add(&mut root, 4, member(4));
        let before = root.clone();
        configured(&mut root, &[1, 2, 3], &[]);
        let removal = MembershipChange::Remove { node: NodeId(4) };
        assert!(root.is_as_wanted(&removal) && !group.has_followed(&removal));
        assert_eq!(group.differences(&root), [NodeId(4)].into());
        follow(&mut group, &root);
        assert!(group.has_followed(&removal));
        assert_eq!(group.differences(&root), BTreeSet::new());
        // A leader whose copy of the root group is old cannot bring it back.
        assert_eq!(group.changes_toward(&before), []);
    }

    #[test]
    fn a_node_without_a_copy_of_the_root_group_removes_nothing() {
        let group = founded();
        let unknown = Membership::default();
        assert_eq!((group.changes_toward(&unknown), group.id_to_retire(&unknown)), (vec![], None));
    }
}
