//! How the membership of a group changes, shown in virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::{Cluster, Ended, add, member, open, remove};
use holdfast_core::SessionId;
use holdfast_replica::{
    ChangeRefusal, DirectoryId, HandOverRefusal, Member, Membership, MembershipChange, NodeId,
    Role, Unavailable,
};

const ALICE: SessionId = SessionId(0xa11ce);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ids<const N: usize>(ids: [u64; N]) -> BTreeSet<NodeId> {
    ids.map(NodeId).into()
}

fn is_settled(cluster: &Cluster, node: NodeId, voters: &BTreeSet<NodeId>) -> bool {
    let configuration = &cluster.replica(node).membership().configuration;
    configuration.voters == *voters && !configuration.is_joint()
}

fn run_until_voters(cluster: &mut Cluster, voters: &BTreeSet<NodeId>) {
    let what = format!("{voters:?} vote, and know it");
    cluster
        .run_until(&what, |cluster| voters.iter().all(|node| is_settled(cluster, *node, voters)));
}

/// Three nodes with a lock, whose members have told their directories.
fn three() -> Cluster {
    let mut cluster = Cluster::new(3);
    for id in 1..=3 {
        introduce_all(&mut cluster, id);
    }
    cluster.commit(open(ALICE, 60_000));
    cluster.acquire(ALICE, "wallet");
    cluster
}

fn introduce_all(cluster: &mut Cluster, id: u64) {
    for other in 1..=3 {
        let directory = Some(DirectoryId([other as u8; 16]));
        let known = Member { directory, ..member(other) };
        cluster.replica_mut(NodeId(id)).report_member(NodeId(other), known, other == id);
    }
}

fn last_index(cluster: &Cluster) -> u64 {
    cluster.replica(cluster.leader().unwrap()).progress().last_index
}

#[test]
fn the_first_leader_records_the_members_in_the_log() {
    let mut cluster = three();
    cluster.run_for(ms(500));
    let expected: Membership = cluster.replica(NodeId(1)).membership().clone();
    assert!(expected.cluster.is_some());
    assert_eq!(expected.members[&NodeId(3)].peer_address, "host-3:7421");
    assert_eq!(expected.members[&NodeId(2)].directory, Some(DirectoryId([2; 16])));
    for id in 1..=3 {
        assert_eq!(*cluster.replica(NodeId(id)).membership(), expected);
    }
    let before = last_index(&cluster);
    cluster.run_for(ms(5_000));
    assert_eq!(last_index(&cluster), before, "once is enough");
}

#[test]
fn a_new_node_learns_and_then_votes() {
    let mut cluster = three();
    cluster.start_new(NodeId(4));
    cluster.changed(add(4)).unwrap();
    let leader = cluster.leader().unwrap();
    assert_eq!(cluster.replica(leader).membership().role(NodeId(4)), Some(Role::Learner));
    run_until_voters(&mut cluster, &ids([1, 2, 3, 4]));
    cluster.run_for(ms(300));
    let digest = |cluster: &Cluster, id| cluster.replica(NodeId(id)).table().digest();
    assert_eq!(digest(&cluster, 4), digest(&cluster, 1));
    let known = &cluster.replica(NodeId(4)).membership().members[&NodeId(4)];
    assert_eq!(known.client_address, "host-4:7420");
    // It came by a snapshot: the log does not say who the first members were.
    assert!(cluster.has_snapshot_on_disk(NodeId(4)));
    // Its vote counts: with two of four dead nothing is decided.
    cluster.kill(NodeId(2));
    cluster.acquire(ALICE, "with three of four");
}

#[test]
fn a_learner_that_is_to_stay_one_does_and_can_be_promoted_later() {
    let mut cluster = three();
    cluster.start_new(NodeId(4));
    let learner = Member { stays_learner: true, ..member(4) };
    cluster.changed(MembershipChange::Add { node: NodeId(4), member: learner }).unwrap();
    cluster.run_for(ms(3_000));
    let leader = cluster.leader().unwrap();
    assert_eq!(cluster.replica(leader).membership().role(NodeId(4)), Some(Role::Learner));
    assert_eq!(cluster.replica(NodeId(4)).table().lock_count(), 1);
    cluster.changed(MembershipChange::Promote { node: NodeId(4) }).unwrap();
    run_until_voters(&mut cluster, &ids([1, 2, 3, 4]));
}

#[test]
fn a_node_that_never_starts_stays_a_learner_and_can_be_removed() {
    let mut cluster = three();
    cluster.changed(add(4)).unwrap();
    cluster.run_for(ms(3_000));
    let leader = cluster.leader().unwrap();
    assert_eq!(cluster.replica(leader).membership().role(NodeId(4)), Some(Role::Learner));
    let promoted = cluster.changed(MembershipChange::Promote { node: NodeId(4) });
    assert!(matches!(promoted, Err(ChangeRefusal::NotCaughtUp { .. })), "{promoted:?}");
    let second = cluster.changed(add(5));
    assert!(matches!(second, Err(ChangeRefusal::UnderWay { .. })), "{second:?}");
    cluster.changed(remove(4)).unwrap();
    run_until_voters(&mut cluster, &ids([1, 2, 3]));
    cluster.acquire(ALICE, "still served");
}

#[test]
fn a_removed_follower_disturbs_the_group_no_more() {
    let mut cluster = three();
    let leader = cluster.leader().unwrap();
    let removed = if leader.0 == 3 { 2 } else { 3 };
    cluster.changed(remove(removed)).unwrap();
    let left: BTreeSet<NodeId> = ids([1, 2, 3]).difference(&ids([removed])).copied().collect();
    run_until_voters(&mut cluster, &left);
    assert!(cluster.replica(leader).membership().was_removed(NodeId(removed)));
    let term = cluster.replica(leader).progress().leadership.term;
    cluster.run_for(ms(5_000));
    assert_eq!(cluster.replica(leader).progress().leadership.term, term);
    cluster.kill(NodeId(removed));
    cluster.acquire(ALICE, "served by two");
    assert_eq!(cluster.changed(remove(removed)), Ok(()), "asked again, it is as it should be");
}

#[test]
fn a_leader_that_is_to_be_removed_hands_over_first() {
    let mut cluster = three();
    let leader = cluster.leader().unwrap();
    let ticket = cluster.change(leader, remove(leader.0));
    let Ended::Failed(Unavailable::NotLeader { leader: Some(next) }) =
        cluster.run_until_ended(ticket)
    else {
        panic!("it removed itself");
    };
    cluster.run_until("the next one leads", |cluster| cluster.leader() == Some(next));
    cluster.changed(remove(leader.0)).unwrap();
    let left: BTreeSet<NodeId> = ids([1, 2, 3]).difference(&[leader].into()).copied().collect();
    cluster.kill(leader);
    run_until_voters(&mut cluster, &left);
    cluster.acquire(ALICE, "served by two");
}

/// Brings a group of five to the middle of a change of voters, where the leader crashes. The others have
/// either only the change in their logs, or its end too.
fn crash_half_way(cluster: &mut Cluster, change: MembershipChange, has_end: bool) -> NodeId {
    let leader = cluster.run_until_leader();
    cluster.change(leader, change);
    cluster.run_until("the change is half done", |cluster| {
        let all = (1..=5).map(|id| cluster.replica(NodeId(id)).membership());
        let joint = all.filter(|membership| membership.configuration.is_joint()).count();
        joint >= if has_end { 3 } else { 1 }
    });
    // What is on the wire is lost with it.
    cluster.isolate(leader);
    cluster.step();
    cluster.kill(leader);
    cluster.heal();
    let (logs, configurations): (Vec<_>, Vec<_>) = (2..=5)
        .map(|id| cluster.replica(NodeId(id)))
        .map(|replica| (replica.progress().last_index, &replica.membership().configuration))
        .unzip();
    assert_eq!(configurations.iter().all(|configuration| configuration.is_joint()), has_end);
    assert!(logs.windows(2).all(|pair| pair[0] == pair[1]), "{logs:?}");
    leader
}

#[test]
fn a_change_that_a_crash_left_half_done_is_completed_by_the_next_leader() {
    for has_end in [false, true] {
        let mut cluster = Cluster::new(5);
        cluster.commit(open(ALICE, 60_000));
        let crashed = crash_half_way(&mut cluster, remove(2), has_end);
        let left = ids([1, 3, 4, 5]);
        cluster.run_until("the next leader completes it", |cluster| {
            [3, 4, 5].iter().all(|id| is_settled(cluster, NodeId(*id), &left))
        });
        cluster.acquire(ALICE, "after it");
        cluster.start(crashed);
        run_until_voters(&mut cluster, &left);
    }
}

#[test]
fn a_leader_in_the_middle_of_its_own_removal_steps_down() {
    for has_end in [false, true] {
        let mut cluster = Cluster::new(5);
        cluster.commit(open(ALICE, 60_000));
        crash_half_way(&mut cluster, remove(2), has_end);
        // Of those who believe in no leader node 2 is the first to stand for election.
        for id in 3..=5 {
            cluster.kill(NodeId(id));
            cluster.start(NodeId(id));
        }
        cluster.run_until("the one that is being removed leads", |cluster| {
            cluster.leader() == Some(NodeId(2))
        });
        let left = ids([1, 3, 4, 5]);
        cluster.run_until("the others are alone", |cluster| {
            [3, 4, 5].iter().all(|id| is_settled(cluster, NodeId(*id), &left))
                && cluster.leader().is_some_and(|leader| leader != NodeId(2))
        });
        assert!(!cluster.replica(NodeId(2)).leadership().is_here);
        cluster.acquire(ALICE, "after it");
    }
}

/// Of two voters, the one that is being removed leads when the end of the change is committed. It stops when it has
/// applied its removal, as a process does. The voter that is left must not need its vote, even if the first message
/// about the commit is lost.
#[test]
fn a_leader_applies_its_own_removal_when_the_new_voters_know_of_it() {
    let mut cluster = Cluster::new(2);
    cluster.commit(open(ALICE, 60_000));
    let (stays, goes) = (NodeId(1), NodeId(2));
    cluster.change(stays, remove(goes.0));
    cluster.run_until("the other has the end of the change in its log", |cluster| {
        cluster.replica(goes).membership().configuration.is_joint()
    });
    let end = cluster.replica(goes).progress().last_index;
    // Its acknowledgement is lost with the leader.
    cluster.kill(stays);
    cluster.start(stays);
    cluster.pause(stays);
    cluster.run_for(ms(1_000));
    cluster.resume(stays);
    cluster.run_until("the one that is being removed commits the end", |cluster| {
        cluster.replica(goes).progress().commit_index >= end
    });
    cluster.isolate(goes);
    cluster.run_for(ms(200));
    cluster.heal();
    cluster
        .run_until("it is removed", |cluster| !cluster.replica(goes).membership().is_member(goes));
    cluster.kill(goes);
    run_until_voters(&mut cluster, &[stays].into());
    cluster.acquire(ALICE, "after it");
}

#[test]
fn all_restart_from_snapshots_of_the_joint_state_and_complete_it() {
    let mut cluster = Cluster::new(5);
    cluster.commit(open(ALICE, 60_000));
    let leader = cluster.run_until_leader();
    cluster.change(leader, remove(5));
    cluster.run_until("the change is half done", |cluster| {
        (1..=5).any(|id| cluster.replica(NodeId(id)).membership().configuration.is_joint())
    });
    for id in 1..=5 {
        cluster.replica_mut(NodeId(id)).request_snapshot();
    }
    for id in 1..=5 {
        cluster.isolate(NodeId(id));
    }
    cluster.run_for(ms(100));
    let is_joint =
        |cluster: &Cluster, id| cluster.replica(NodeId(id)).membership().configuration.is_joint();
    let joint = (1..=5).filter(|id| is_joint(&cluster, *id)).count();
    assert!(joint > 0 && (1..=5).all(|id| cluster.has_snapshot_on_disk(NodeId(id))));
    for id in 1..=5 {
        cluster.kill(NodeId(id));
    }
    cluster.heal();
    for id in 1..=5 {
        cluster.start(NodeId(id));
    }
    assert_eq!((1..=5).filter(|id| is_joint(&cluster, *id)).count(), joint);
    run_until_voters(&mut cluster, &ids([1, 2, 3, 4]));
    cluster.acquire(ALICE, "after it");
}

#[test]
fn replaying_the_log_makes_every_change_once() {
    let mut cluster = three();
    cluster.start_new(NodeId(4));
    cluster.changed(add(4)).unwrap();
    run_until_voters(&mut cluster, &ids([1, 2, 3, 4]));
    cluster.changed(remove(1)).unwrap();
    run_until_voters(&mut cluster, &ids([2, 3, 4]));
    cluster.kill(NodeId(1));
    let before = cluster.replica(NodeId(2)).membership().clone();
    for id in 2..=4 {
        cluster.kill(NodeId(id));
    }
    for id in 2..=4 {
        cluster.start(NodeId(id));
    }
    cluster.run_until_leader();
    cluster.acquire(ALICE, "after it");
    cluster.run_for(ms(500));
    for id in 2..=4 {
        assert_eq!(*cluster.replica(NodeId(id)).membership(), before);
    }
}

#[test]
fn one_node_takes_the_place_of_another_in_one_step() {
    let mut cluster = three();
    cluster.kill(NodeId(2));
    cluster.start_new(NodeId(4));
    let replacing = Member { replaces: Some(NodeId(2)), ..member(4) };
    cluster.changed(MembershipChange::Add { node: NodeId(4), member: replacing }).unwrap();
    run_until_voters(&mut cluster, &ids([1, 3, 4]));
    cluster.acquire(ALICE, "after it");
}

#[test]
fn a_leader_is_replaced_too() {
    let mut cluster = three();
    let leader = cluster.leader().unwrap();
    cluster.start_new(NodeId(4));
    let replacing = Member { replaces: Some(leader), ..member(4) };
    cluster.changed(MembershipChange::Add { node: NodeId(4), member: replacing }).unwrap();
    let mut voters = ids([1, 2, 3, 4]);
    voters.remove(&leader);
    run_until_voters(&mut cluster, &voters);
    cluster.kill(leader);
    cluster.acquire(ALICE, "after it");
}

/// Of two voters one is replaced, and soon after the power fails, with nothing else written in between. Those who are
/// left must not need the vote of the one that is gone.
#[test]
fn a_change_of_members_outlives_a_power_cut_soon_after_it() {
    let mut cluster = three();
    let leader = cluster.leader().unwrap();
    let mut others = ids([1, 2, 3]);
    others.remove(&leader);
    let (removed, replaced) = (*others.first().unwrap(), *others.last().unwrap());
    cluster.changed(remove(removed.0)).unwrap();
    run_until_voters(&mut cluster, &[leader, replaced].into());
    cluster.kill(removed);

    cluster.start_new(NodeId(4));
    let replacing = Member { replaces: Some(replaced), ..member(4) };
    cluster.changed(MembershipChange::Add { node: NodeId(4), member: replacing }).unwrap();
    let left = [leader, NodeId(4)];
    run_until_voters(&mut cluster, &left.into());
    cluster.run_for(ms(200));
    cluster.kill(replaced);
    for node in left {
        cluster.kill(node);
    }
    for node in left {
        cluster.start(node);
    }
    cluster.run_until_leader();
    cluster.acquire(ALICE, "after it");
}

#[test]
fn a_removal_that_could_not_be_completed_is_refused() {
    let mut cluster = three();
    let leader = cluster.leader().unwrap();
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader.0).collect();
    cluster.kill(NodeId(others[0]));
    cluster.run_for(ms(2_000));
    let before = last_index(&cluster);
    let refused = cluster.changed(remove(others[1]));
    assert_eq!(refused, Err(ChangeRefusal::NoQuorumLeft { voters: 2, live: 1, needed: 2 }));
    let refused = cluster.changed(remove(9));
    assert_eq!(refused, Err(ChangeRefusal::UnknownNode { node: NodeId(9) }));
    assert_eq!(last_index(&cluster), before, "nothing is in the log");
    // The dead one can go.
    cluster.changed(remove(others[0])).unwrap();
    cluster.acquire(ALICE, "after it");
}

#[test]
fn a_second_change_is_refused_while_one_is_in_the_log() {
    let mut cluster = three();
    let leader = cluster.leader().unwrap();
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader.0).collect();
    let first = cluster.change(leader, remove(others[0]));
    let second = cluster.change(leader, remove(others[1]));
    let refused = cluster.run_until_ended(second);
    assert!(matches!(refused, Ended::Changed(Err(ChangeRefusal::UnderWay { .. }))), "{refused:?}");
    assert_eq!(cluster.run_until_ended(first), Ended::Changed(Ok(())));
}

#[test]
fn a_new_leader_does_not_take_an_unapplied_change_for_another_change() {
    let mut cluster = Cluster::new(5);
    cluster.commit(open(ALICE, 60_000));
    let first = cluster.leader().unwrap();
    // It dies when the others have an entry of which they do not know that it is committed.
    cluster.acquire_soon(first, ALICE, "in the log");
    cluster.step();
    cluster.step();
    cluster.kill(first);
    let mut asked = Vec::new();
    for _ in 0..300 {
        cluster.step();
        if let Some(leader) = cluster.leader() {
            cluster.acquire_soon(leader, ALICE, &format!("lock-{}", asked.len()));
            asked.push(cluster.change(leader, remove(9)));
        }
    }
    let unknown = Ended::Changed(Err(ChangeRefusal::UnknownNode { node: NodeId(9) }));
    assert!(asked.len() > 100);
    for ticket in asked {
        assert_eq!(cluster.run_until_ended(ticket), unknown);
    }
}

#[test]
fn a_node_that_was_away_while_everybody_else_was_replaced_finds_its_way() {
    let mut cluster = three();
    cluster.kill(NodeId(3));
    for (new, old) in [(4, 1), (5, 2)] {
        cluster.start_new(NodeId(new));
        let replacing = Member { replaces: Some(NodeId(old)), ..member(new) };
        cluster.changed(MembershipChange::Add { node: NodeId(new), member: replacing }).unwrap();
        let mut voters = ids([3, 4, new]);
        voters.extend((old == 1).then_some(NodeId(2)));
        cluster.run_until("it is replaced", |cluster| is_settled(cluster, NodeId(new), &voters));
        cluster.kill(NodeId(old));
    }
    cluster.start(NodeId(3));
    run_until_voters(&mut cluster, &ids([3, 4, 5]));
    cluster.kill(NodeId(4));
    cluster.acquire(ALICE, "with its help");
}

#[test]
fn a_new_node_is_not_sent_a_snapshot_from_before_it_was_a_member() {
    let mut cluster = Cluster::with_snapshots_every(3, 20);
    cluster.commit(open(ALICE, 60_000));
    cluster.kill(NodeId(3));
    for n in 0..50 {
        cluster.acquire(ALICE, &format!("lock-{n}"));
    }
    // A snapshot for node 3 is on its way, and stays there.
    cluster.start(NodeId(3));
    cluster.run_until("it is sent a snapshot", Cluster::is_snapshot_on_its_way);
    cluster.pause(NodeId(3));
    cluster.start_new(NodeId(4));
    cluster.changed(add(4)).unwrap();
    cluster.run_until("the new node votes", |cluster| {
        is_settled(cluster, NodeId(4), &ids([1, 2, 3, 4]))
    });
    cluster.resume(NodeId(3));
    run_until_voters(&mut cluster, &ids([1, 2, 3, 4]));
}

#[test]
fn a_recorded_directory_is_not_replaced_by_that_of_a_wiped_node() {
    let mut cluster = three();
    cluster.run_for(ms(500));
    let wiped = Member { directory: Some(DirectoryId([9; 16])), ..member(2) };
    let leader = cluster.leader().unwrap();
    cluster.replica_mut(leader).report_member(NodeId(2), wiped, true);
    cluster.run_for(ms(500));
    let known = &cluster.replica(leader).membership().members[&NodeId(2)];
    assert_eq!(known.directory, Some(DirectoryId([2; 16])));
}

#[test]
fn an_address_that_a_node_changed_is_recorded() {
    let mut cluster = three();
    cluster.run_for(ms(500));
    let leader = cluster.leader().unwrap();
    let moved = Member { peer_address: "elsewhere:7421".into(), ..member(2) };
    cluster.replica_mut(leader).report_member(NodeId(2), moved, true);
    cluster.run_until("all know it", |cluster| {
        (1..=3).all(|id| {
            let membership = cluster.replica(NodeId(id)).membership();
            membership.members[&NodeId(2)].peer_address == "elsewhere:7421"
        })
    });
}

#[test]
fn leadership_is_transferred_only_to_a_reachable_voter() {
    let mut cluster = three();
    cluster.run_for(ms(300));
    let leader = cluster.leader().unwrap();
    let others: Vec<NodeId> = (1..=3).map(NodeId).filter(|node| *node != leader).collect();
    let unknown = cluster.replica_mut(leader).hand_over(Some(NodeId(9)));
    assert_eq!(unknown, Err(HandOverRefusal::NotAVoter { node: NodeId(9) }));
    let not_leading = cluster.replica_mut(others[0]).hand_over(None);
    assert_eq!(not_leading, Err(HandOverRefusal::NotLeader { leader: Some(leader) }));
    assert_eq!(cluster.replica_mut(leader).hand_over(Some(others[1])), Ok(others[1]));
    cluster.run_until("it leads", |cluster| cluster.leader() == Some(others[1]));
    cluster.kill(leader);
    cluster.run_for(ms(2_000));
    let dead = cluster.replica_mut(others[1]).hand_over(Some(leader));
    assert_eq!(dead, Err(HandOverRefusal::Unreachable { node: leader }));
}
