//! The members of each group, as the nodes report them, and what has to hold of them.
//!
//! A membership is judged when the first node reports it. That node has applied all entries before, or has its state from
//! a node that has. So no change of a group is left out.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::LogIndex;
use holdfast_replica::{GroupId, Membership, NodeId, Role};

use crate::recorder::place;
use crate::world::{World, index_of};

/// The members that a group has had.
#[derive(Debug)]
pub(crate) struct GroupMembers {
    newest: Membership,
    newest_at: LogIndex,
    /// As reported, by the index from which on they were the members.
    log: BTreeMap<LogIndex, Membership>,
    /// All that were members, and all that had a vote.
    had: BTreeSet<NodeId>,
    voted: BTreeSet<NodeId>,
}

impl GroupMembers {
    /// A group begins with these members.
    pub(crate) fn of(members: Membership, index: LogIndex) -> GroupMembers {
        let had = members.members.keys().copied().collect();
        let voted = members.configuration.voters.clone();
        GroupMembers { newest: members, newest_at: index, log: BTreeMap::new(), had, voted }
    }

    /// A node has applied the log up to this index, and has these members. Says whether it is the first node, and what is
    /// wrong with that.
    fn report(
        &mut self,
        index: LogIndex,
        members: &Membership,
        root: Option<&GroupMembers>,
    ) -> (bool, Option<String>) {
        if index <= self.newest_at {
            let known = self.log.range(..=index).next_back();
            let differs = known.is_some_and(|(_, known)| known != members);
            return (false, differs.then(|| "another node has other members".to_owned()));
        }
        let wrong = wrong_step(&self.newest, members)
            .or_else(|| wrong_following(&self.newest, members, root?));
        self.had.extend(members.members.keys());
        self.voted.extend(&members.configuration.voters);
        self.log.insert(index, members.clone());
        (self.newest, self.newest_at) = (members.clone(), index);
        (true, wrong)
    }
}

fn is_gone(members: &Membership, node: NodeId) -> bool {
    node <= members.highest && !members.is_member(node)
}

/// What is wrong if a group has the new members after the old ones.
fn wrong_step(old: &Membership, new: &Membership) -> Option<String> {
    if let Some(node) = new.members.keys().find(|node| is_gone(old, **node)) {
        return Some(format!("node {node} was removed and is a member again"));
    }
    if new.highest < old.highest {
        return Some(format!("the id {} is no longer used up", old.highest));
    }
    let (before, after) = (&old.configuration, &new.configuration);
    // The quorums of two neighbours always have a node in common.
    let is_sound = if before.voters == after.voters {
        after.outgoing.is_empty() || after.outgoing == before.outgoing
    } else {
        before.outgoing.is_empty() && after.outgoing == before.voters
    };
    (!is_sound).then(|| format!("the voters change without a joint state: {before:?}, {after:?}"))
}

/// What is wrong with that step of a group that follows the root group.
fn wrong_following(old: &Membership, new: &Membership, root: &GroupMembers) -> Option<String> {
    let has_left = |node: &NodeId| {
        let members = &root.newest;
        is_gone(members, *node) || members.role(*node) == Some(Role::Leaving)
    };
    let (before, after) = (&old.configuration.voters, &new.configuration.voters);
    let removed = old.members.keys().filter(|node| !new.is_member(**node));
    let mut leaving = removed.chain(before.difference(after));
    if let Some(node) = new.members.keys().find(|node| !root.had.contains(node)) {
        return Some(format!("the root group never had node {node}"));
    }
    if let Some(node) = after.difference(before).find(|node| !root.voted.contains(node)) {
        return Some(format!("node {node} never had a vote in the root group"));
    }
    leaving
        .find(|node| !has_left(node))
        .map(|node| format!("the root group has not removed {node}"))
}

impl World {
    /// The newest that any node has applied.
    pub(crate) fn members_of(&self, group: GroupId) -> &Membership {
        &self.group_members[place(group)].newest
    }

    /// The nodes that one of the groups has.
    pub(crate) fn members_of_any_group(&self) -> Vec<usize> {
        let groups = self.group_members.iter();
        let nodes = groups.flat_map(|group| group.newest.members.keys());
        nodes.map(|node| index_of(*node)).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether this is new.
    pub(crate) fn judge_members(
        &mut self,
        node: usize,
        group: GroupId,
        index: LogIndex,
        members: &Membership,
    ) -> bool {
        let (root, others) = self.group_members.split_at_mut(1);
        let (is_new, wrong) = match group {
            GroupId::FIRST => root[0].report(index, members, None),
            group => others[place(group) - 1].report(index, members, Some(&root[0])),
        };
        if let Some(wrong) = wrong {
            let (at, node) = (self.now.0 / 1_000, self.nodes[node].id);
            let what = format!("at {at} ms node {node}, group {group}, index {}: {wrong}", index.0);
            self.recorder.violation("members", what);
        }
        is_new
    }

    /// A node is told, or has learned, that it was removed. Then all groups have removed it.
    pub(crate) fn check_that_it_was_removed(&mut self, node: NodeId) {
        let group = self.groups().find(|group| !is_gone(self.members_of(*group), node));
        if let Some(group) = group {
            let at = self.now.0 / 1_000;
            let what =
                format!("at {at} ms node {node} counts as removed, and group {group} has it");
            self.recorder.violation("members", what);
        }
    }

    /// A group that has not made the last change of the root group, and the node that was changed.
    pub(crate) fn group_behind(&self) -> Option<(GroupId, NodeId)> {
        let root = self.members_of(GroupId::FIRST);
        let differences = |group| self.members_of(group).differences(root);
        self.groups().skip(1).find_map(|group| Some((group, *differences(group).first()?)))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_replica::{Configuration, Member};

    use super::*;

    fn ids(nodes: &[u64]) -> BTreeSet<NodeId> {
        nodes.iter().copied().map(NodeId).collect()
    }

    fn members(voters: &[u64], outgoing: &[u64], learners: &[u64]) -> Membership {
        let configuration =
            Configuration { voters: ids(voters), outgoing: ids(outgoing), learners: ids(learners) };
        let nodes = configuration.nodes();
        let highest = nodes.last().copied().unwrap_or_default();
        let members = nodes.into_iter().map(|node| (node, Member::default())).collect();
        Membership { cluster: None, highest, configuration, members }
    }

    fn with_highest(highest: u64, members: Membership) -> Membership {
        Membership { highest: NodeId(highest), ..members }
    }

    /// A group with three voters gets these members one after the other.
    fn judged(steps: &[Membership], root: Option<&GroupMembers>) -> Vec<Option<String>> {
        let mut group = GroupMembers::of(members(&[1, 2, 3], &[], &[]), LogIndex(0));
        let steps = steps.iter().zip(1..);
        steps.map(|(step, index)| group.report(LogIndex(index), step, root).1).collect()
    }

    #[test]
    fn a_change_of_voters_without_a_joint_state_is_found() {
        let sound = [
            members(&[1, 2, 3], &[], &[4]),
            members(&[1, 2, 4], &[1, 2, 3], &[]),
            with_highest(4, members(&[1, 2, 4], &[], &[])),
        ];
        assert_eq!(judged(&sound, None), [None, None, None]);
        let [added, joint, done] = sound;
        for steps in [vec![added, done.clone()], vec![joint, members(&[1, 4], &[1, 2, 4], &[])]] {
            let found = judged(&steps, None);
            assert!(found[0].is_none() && found[1].is_some(), "{found:?}");
        }
        assert!(judged(&[with_highest(3, members(&[1, 2], &[], &[]))], None)[0].is_some());
    }

    #[test]
    fn an_id_that_comes_back_is_found() {
        let removed = with_highest(4, members(&[1, 2, 3], &[], &[]));
        let steps = [members(&[1, 2, 3], &[], &[4]), removed, members(&[1, 2, 3], &[], &[4])];
        let found = judged(&steps, None);
        assert!(found[1].is_none() && found[2].is_some(), "{found:?}");
    }

    #[test]
    fn a_node_with_other_members_at_an_index_is_found() {
        let mut group = GroupMembers::of(members(&[1, 2, 3], &[], &[]), LogIndex(0));
        let added = members(&[1, 2, 3], &[], &[4]);
        assert_eq!(group.report(LogIndex(5), &added, None), (true, None));
        assert_eq!(group.report(LogIndex(5), &added, None), (false, None));
        let (is_new, wrong) = group.report(LogIndex(5), &members(&[1, 2, 3], &[], &[5]), None);
        assert!(!is_new && wrong.is_some());
    }

    #[test]
    fn a_group_that_does_what_the_root_group_has_not_done_is_found() {
        let beginning = members(&[1, 2, 3], &[], &[]);
        let root = |step: Membership| {
            let mut root = GroupMembers::of(beginning.clone(), LogIndex(0));
            root.report(LogIndex(1), &step, None);
            root
        };
        let learner = members(&[1, 2, 3], &[], &[4]);
        let votes = members(&[1, 2, 3, 4], &[1, 2, 3], &[]);
        let leaves = members(&[1, 2], &[1, 2, 3], &[]);
        for (root_has, group_gets, is_right) in [
            (&learner, &learner, true),
            (&beginning, &learner, false),
            (&votes, &votes, true),
            (&learner, &votes, false),
            (&leaves, &leaves, true),
            (&learner, &leaves, false),
        ] {
            let found = judged(std::slice::from_ref(group_gets), Some(&root(root_has.clone())));
            assert_eq!(found[0].is_none(), is_right, "{root_has:?} {group_gets:?}");
        }
    }
}
