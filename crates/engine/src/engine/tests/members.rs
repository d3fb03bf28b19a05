//! The members of the root group become those of the other groups: clusters in virtual time.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_replica::{
    ChangeRefusal, DirectoryId, GroupId, Member, Membership, MembershipChange, NodeId, Role,
};

use super::groups::{Cluster, FIRST, SECOND, touch};
use crate::peer_registry::MEMBERS_SINCE;

const THIRD: GroupId = GroupId(3);
const NEW: NodeId = NodeId(4);

fn member(node: u64) -> Member {
    Member {
        peer_address: format!("h{node}:7421"),
        client_address: format!("h{node}:7420"),
        ..Member::default()
    }
}

fn add(node: NodeId) -> MembershipChange {
    MembershipChange::Add { node, member: member(node.0) }
}

fn members(cluster: &Cluster, node: NodeId, group: GroupId) -> &Membership {
    cluster.nodes[&node].engine.replica(group).unwrap().membership()
}

/// All nodes have met each other.
fn introduce(cluster: &mut Cluster) {
    let all: Vec<NodeId> = cluster.nodes.keys().copied().collect();
    for node in cluster.nodes.values_mut() {
        for known in &all {
            let directory = Some(DirectoryId([known.0 as u8; 16]));
            let reported = Member { directory, ..member(known.0) };
            node.engine.peer_identified(*known, reported, MEMBERS_SINCE);
        }
    }
}

/// Three nodes with three groups that know each other, and a node that waits to be added.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(3, 3);
    cluster.start(NEW.0, 0, 3);
    introduce(&mut cluster);
    cluster.run_until(|cluster| {
        [FIRST, SECOND, THIRD]
            .iter()
            .all(|group| members(cluster, NodeId(3), *group).cluster.is_some())
    });
    cluster
}

/// Asks the leader of the root group.
fn change(cluster: &mut Cluster, number: u64, change: MembershipChange) {
    let leader = cluster.leader(FIRST).unwrap();
    cluster.node(leader).engine.change_membership(FIRST, change, number);
}

#[track_caller]
fn votes_become(cluster: &mut Cluster, groups: &[GroupId], voters: &[u64]) {
    let voters: BTreeSet<NodeId> = voters.iter().copied().map(NodeId).collect();
    cluster.run_until(|cluster| {
        let is_so = |group: &GroupId| {
            let leader = cluster.leader(*group);
            leader.is_some_and(|leader| {
                let now = &members(cluster, leader, *group).configuration;
                now.voters == voters && !now.is_joint() && now.learners.is_empty()
            })
        };
        groups.iter().all(is_so)
    });
}

#[test]
fn the_other_groups_follow_the_root_group() {
    let mut cluster = cluster();
    let all = [FIRST, SECOND, THIRD];
    change(&mut cluster, 1, add(NEW));
    votes_become(&mut cluster, &all, &[1, 2, 3, 4]);
    cluster.run_until(|cluster| members(cluster, NEW, THIRD).is_member(NEW));
    assert_eq!(cluster.nodes[&NodeId(1)].changes[&1], Ok(Ok(())));
    let directory = Some(DirectoryId([4; 16]));
    for group in all {
        let known = &members(&cluster, NEW, group).members[&NEW];
        assert_eq!(*known, Member { directory, ..member(4) }, "group {group}");
    }
    // Node 1 leads all groups, and goes.
    change(&mut cluster, 2, MembershipChange::Remove { node: NodeId(1) });
    cluster.run_until(|cluster| cluster.leader(FIRST).is_some_and(|leader| leader != NodeId(1)));
    change(&mut cluster, 3, MembershipChange::Remove { node: NodeId(1) });
    votes_become(&mut cluster, &all, &[2, 3, 4]);
}

#[test]
fn a_group_that_was_cut_off_follows_later_and_until_then_no_other_change_is_made() {
    let mut cluster = cluster();
    cluster.cut.insert(SECOND);
    change(&mut cluster, 1, add(NEW));
    votes_become(&mut cluster, &[FIRST, THIRD], &[1, 2, 3, 4]);
    assert!(!members(&cluster, NodeId(1), SECOND).is_member(NEW));
    // The same again is done already, and another node has to wait.
    change(&mut cluster, 2, add(NEW));
    change(&mut cluster, 3, MembershipChange::Remove { node: NodeId(2) });
    cluster.run_for(Duration::from_millis(100));
    let changes = &cluster.nodes[&NodeId(1)].changes;
    assert_eq!(changes[&2], Ok(Ok(())));
    let Ok(Err(ChangeRefusal::UnderWay { what })) = &changes[&3] else {
        panic!("{changes:?}");
    };
    assert_eq!(what, "group 2 has not yet made the last change of node 4");

    // Its leader is gone, and the next one goes on.
    cluster.node(NodeId(1)).stopped = Some(crate::effect::StopCause::Requested);
    cluster.cut.clear();
    votes_become(&mut cluster, &[FIRST, SECOND, THIRD], &[1, 2, 3, 4]);
}

#[test]
fn a_node_that_the_root_group_gave_up_never_comes_to_a_group_that_had_no_leader_meanwhile() {
    let mut cluster = cluster();
    cluster.cut.insert(SECOND);
    change(&mut cluster, 1, add(NEW));
    votes_become(&mut cluster, &[FIRST, THIRD], &[1, 2, 3, 4]);
    change(&mut cluster, 2, MembershipChange::Remove { node: NEW });
    votes_become(&mut cluster, &[FIRST, THIRD], &[1, 2, 3]);
    cluster.cut.clear();
    cluster.run_until(|cluster| {
        (1..=3).all(|node| members(cluster, NodeId(node), SECOND).was_removed(NEW))
    });
    change(&mut cluster, 3, add(NEW));
    cluster.run_for(Duration::from_millis(100));
    let leader = cluster.leader(FIRST).unwrap();
    let refused = &cluster.nodes[&leader].changes[&3];
    assert!(matches!(refused, Ok(Err(ChangeRefusal::IdUsedBefore { .. }))), "{refused:?}");
}

fn replace_third() -> MembershipChange {
    let member = Member { replaces: Some(NodeId(3)), ..member(NEW.0) };
    MembershipChange::Add { node: NEW, member }
}

#[test]
fn a_node_that_dies_before_it_has_replaced_another_in_each_group_can_be_removed() {
    let mut cluster = cluster();
    cluster.cut.insert(SECOND);
    change(&mut cluster, 1, replace_third());
    votes_become(&mut cluster, &[FIRST, THIRD], &[1, 2, 4]);
    cluster.node(NEW).stopped = Some(crate::effect::StopCause::Requested);
    cluster.cut.clear();
    cluster.run_for(Duration::from_secs(2));
    change(&mut cluster, 2, MembershipChange::Remove { node: NEW });
    votes_become(&mut cluster, &[FIRST, SECOND, THIRD], &[1, 2]);
}

/// The leader of the group changes, and then the new one leads.
fn hand_over(cluster: &mut Cluster, group: GroupId, to: NodeId) {
    let leader = cluster.leader(group).unwrap();
    cluster.node(leader).engine.hand_over(group, Some(to), 0);
    cluster.run_until(|cluster| cluster.leader(group) == Some(to));
}

#[test]
fn a_node_that_left_the_root_group_hears_no_leader_of_it_so_another_node_completes_a_change() {
    let mut cluster = cluster();
    let leaving = NodeId(3);
    hand_over(&mut cluster, SECOND, leaving);
    cluster.cut_to.insert((NEW, SECOND));
    change(&mut cluster, 1, replace_third());
    // Each entry of the root group tells its followers what is committed, and so the leaving node that it has left.
    for call in 0..1_000 {
        if !members(&cluster, leaving, FIRST).is_member(leaving) {
            break;
        }
        cluster.node(NodeId(1)).engine.call(FIRST, touch(), call, None);
        cluster.run_for(Duration::from_millis(10));
    }
    votes_become(&mut cluster, &[FIRST, THIRD], &[1, 2, 4]);
    cluster.node(NEW).stopped = Some(crate::effect::StopCause::Requested);
    cluster.cut_to.clear();
    change(&mut cluster, 2, MembershipChange::Remove { node: NEW });
    votes_become(&mut cluster, &[FIRST, THIRD], &[1, 2]);

    // Its copy of the root group still has the new node, so the group that it leads waits for that one.
    cluster.run_for(Duration::from_secs(20));
    assert_eq!(cluster.leader(SECOND), Some(leaving));
    assert!(members(&cluster, leaving, SECOND).is_member(NEW));
    let known = cluster.nodes[&leaving].engine.replica(FIRST).unwrap().leadership().leader;
    assert_eq!(known, Some(NodeId(1)), "Raft does not forget the leader");
    assert_eq!(members(&cluster, leaving, FIRST).heard_leader(leaving, known), None);
    // The host gives the group up, because it hears no leader of the root group.
    hand_over(&mut cluster, SECOND, NodeId(1));
    votes_become(&mut cluster, &[SECOND], &[1, 2]);
}

#[test]
fn a_leader_without_a_copy_of_a_group_removes_no_node() {
    let mut cluster = cluster();
    cluster.cut.insert(SECOND);
    change(&mut cluster, 1, add(NEW));
    votes_become(&mut cluster, &[FIRST, THIRD], &[1, 2, 3, 4]);
    hand_over(&mut cluster, FIRST, NEW);
    change(&mut cluster, 2, MembershipChange::Remove { node: NodeId(1) });
    cluster.run_for(Duration::from_millis(100));
    let refused = &cluster.nodes[&NEW].changes[&2];
    assert!(matches!(refused, Ok(Err(ChangeRefusal::UnderWay { .. }))), "{refused:?}");

    cluster.cut.clear();
    cluster.run_until(|cluster| members(cluster, NEW, SECOND).role(NEW) == Some(Role::Voter));
    change(&mut cluster, 3, MembershipChange::Remove { node: NodeId(1) });
    votes_become(&mut cluster, &[FIRST, SECOND, THIRD], &[2, 3, 4]);
}

#[test]
fn a_group_gives_a_vote_only_after_the_root_group() {
    let mut cluster = cluster();
    change(&mut cluster, 1, replace_third());
    cluster.run_until(|cluster| members(cluster, NodeId(1), FIRST).is_member(NEW));
    cluster.cut.insert(FIRST);
    cluster.run_until(|cluster| members(cluster, NEW, SECOND).is_member(NEW));
    cluster.run_for(Duration::from_secs(2));
    for group in [SECOND, THIRD] {
        assert_eq!(members(&cluster, NodeId(1), group).role(NodeId(3)), Some(Role::Voter));
        assert_eq!(members(&cluster, NodeId(1), group).role(NEW), Some(Role::Learner));
    }
    cluster.cut.clear();
    votes_become(&mut cluster, &[FIRST, SECOND, THIRD], &[1, 2, 4]);
}
