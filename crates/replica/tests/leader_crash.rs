//! Followers that get a report that their leader has crashed, rightly or wrongly.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, Ended, open, touch};
use holdfast_core::SessionId;
use holdfast_replica::NodeId;

const ALICE: SessionId = SessionId(0xa11ce);

/// A tick, and the two rounds of an election: each message is 10 ms under way.
const SOON: Duration = Duration::from_millis(50 + 40 + 10);
/// The next voter campaigns two ticks later.
const NEXT_IN_LINE: Duration = Duration::from_millis(100);
/// Of node 2, less what has passed since a heartbeat; the others wait for longer.
const SHORTEST_ELECTION: Duration = Duration::from_millis(600 - 100);

/// Node 1 leads, and all nodes know it. Alice has a session.
fn led_by_1(size: u64) -> Cluster {
    let mut cluster = Cluster::new(size);
    assert_eq!(cluster.run_until_leader(), NodeId(1));
    cluster.commit(open(ALICE, 60_000));
    cluster.run_for(Duration::from_millis(500));
    cluster
}

fn kill_1(cluster: &mut Cluster) {
    cluster.kill(NodeId(1));
    // What it had said arrives.
    cluster.step();
}

fn tell_gone(cluster: &mut Cluster, reported: &[u64], gone: u64) {
    for node in reported {
        cluster.replica_mut(NodeId(*node)).handle_peer_crash(NodeId(gone));
    }
}

fn term(cluster: &Cluster, node: u64) -> u64 {
    cluster.replica(NodeId(node)).leadership().term
}

fn leader_seen_by(cluster: &Cluster, node: u64) -> Option<NodeId> {
    cluster.replica(NodeId(node)).leadership().leader
}

fn time_to_elect(cluster: &mut Cluster) -> (NodeId, Duration) {
    let since = cluster.now;
    let leader = cluster.run_until_leader();
    (leader, cluster.now - since)
}

#[test]
fn followers_told_of_a_leader_crash_elect_one_of_them_within_a_few_ticks() {
    for size in [3, 5] {
        let mut cluster = led_by_1(size);
        let before = term(&cluster, 2);
        kill_1(&mut cluster);
        let others: Vec<u64> = (2..=size).collect();
        tell_gone(&mut cluster, &others, 1);
        let (leader, after) = time_to_elect(&mut cluster);
        assert!(after <= SOON, "{size} nodes: {after:?}");
        cluster.run_for(Duration::from_secs(2));
        for node in others {
            assert_eq!(leader_seen_by(&cluster, node), Some(leader));
            assert_eq!(term(&cluster, node), before + 1, "one election");
        }
        cluster.commit(touch(ALICE));
    }
}

#[test]
fn followers_without_a_crash_report_wait_out_an_election_timeout() {
    let mut cluster = led_by_1(3);
    kill_1(&mut cluster);
    assert!(time_to_elect(&mut cluster).1 >= SHORTEST_ELECTION);
}

#[test]
fn the_second_voter_is_elected_if_the_first_campaigns_before_the_others_know() {
    let mut cluster = led_by_1(3);
    kill_1(&mut cluster);
    tell_gone(&mut cluster, &[2], 1);
    cluster.run_for(Duration::from_millis(60));
    assert_eq!(cluster.leader(), None, "node 3 still follows the one that is gone");
    tell_gone(&mut cluster, &[3], 1);
    let (leader, after) = time_to_elect(&mut cluster);
    assert_eq!(leader, NodeId(3));
    assert!(after <= SOON + NEXT_IN_LINE, "{after:?}");
}

#[test]
fn the_second_voter_is_elected_if_the_first_lacks_entries_or_crashed_too() {
    let mut cluster = led_by_1(3);
    cluster.isolate(NodeId(2));
    cluster.commit(touch(ALICE));
    cluster.heal();
    kill_1(&mut cluster);
    tell_gone(&mut cluster, &[2, 3], 1);
    let (leader, after) = time_to_elect(&mut cluster);
    assert_eq!(leader, NodeId(3));
    assert!(after <= SOON + NEXT_IN_LINE, "{after:?}");

    let mut cluster = led_by_1(5);
    cluster.kill(NodeId(2));
    kill_1(&mut cluster);
    tell_gone(&mut cluster, &[3, 4, 5], 1);
    let (leader, after) = time_to_elect(&mut cluster);
    assert_eq!(leader, NodeId(3));
    assert!(after <= SOON + NEXT_IN_LINE, "{after:?}");
}

#[test]
fn if_only_one_follower_is_told_of_a_crash_the_ordinary_election_takes_place() {
    let mut cluster = led_by_1(3);
    kill_1(&mut cluster);
    tell_gone(&mut cluster, &[2], 1);
    let (_, after) = time_to_elect(&mut cluster);
    assert!(after >= SHORTEST_ELECTION && after <= Duration::from_secs(2), "{after:?}");
}

#[test]
fn a_false_crash_report_at_one_follower_changes_no_term() {
    let mut cluster = led_by_1(3);
    let before = term(&cluster, 2);
    for _ in 0..20 {
        tell_gone(&mut cluster, &[2], 1);
        cluster.run_for(Duration::from_millis(30));
        cluster.commit(touch(ALICE));
    }
    cluster.run_for(Duration::from_millis(200));
    for node in 1..=3 {
        assert_eq!(leader_seen_by(&cluster, node), Some(NodeId(1)));
        assert_eq!(term(&cluster, node), before);
    }
}

#[test]
fn a_leader_that_a_majority_believes_crashed_answers_no_reads_and_then_follows() {
    let mut cluster = led_by_1(3);
    cluster.isolate(NodeId(1));
    tell_gone(&mut cluster, &[2, 3], 1);
    cluster.commit_elsewhere(NodeId(1), touch(ALICE));
    assert!(cluster.replica(NodeId(1)).leadership().is_here, "it does not know");
    let read = cluster.read(NodeId(1));
    cluster.run_for(Duration::from_millis(100));
    cluster.heal();
    assert!(matches!(cluster.run_until_ended(read), Ended::Failed(_)));
    cluster.run_for(Duration::from_millis(500));
    let leader = cluster.leader();
    assert_ne!(leader, Some(NodeId(1)));
    assert_eq!(leader_seen_by(&cluster, 1), leader);
}

#[test]
fn a_crash_report_about_a_node_that_does_not_lead_changes_nothing() {
    let mut cluster = led_by_1(3);
    let before = term(&cluster, 1);
    for step in 0..50 {
        // A report to a follower about a follower; to the leader about a follower, itself, and an unknown node.
        tell_gone(&mut cluster, &[2], 3);
        tell_gone(&mut cluster, &[1], 2);
        tell_gone(&mut cluster, &[1], 1);
        tell_gone(&mut cluster, &[2], 9);
        cluster.step();
        for node in 1..=3 {
            assert_eq!(leader_seen_by(&cluster, node), Some(NodeId(1)), "step {step}");
            assert_eq!(term(&cluster, node), before);
        }
    }
}
