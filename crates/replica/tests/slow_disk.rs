//! A leader whose disk is slow, though not so slow that its followers miss its heartbeats.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, open, touch};
use holdfast_core::SessionId;
use holdfast_replica::NodeId;

const ALICE: SessionId = SessionId(0xa11ce);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The leader is under load, and the disks of these nodes take so long for one write.
fn write_slowly(cluster: &mut Cluster, slow: &[NodeId], write: Duration) {
    if let Some(leader) = cluster.leader() {
        cluster.call(leader, touch(ALICE));
    }
    cluster.step();
    slow.iter().for_each(|node| cluster.pause(*node));
    cluster.run_for(write);
    for node in slow {
        cluster.resume(*node);
        cluster.replica_mut(*node).handle_write_time(write);
    }
    cluster.step();
}

fn settled(nodes: u64) -> (Cluster, NodeId) {
    let mut cluster = Cluster::new(nodes);
    cluster.commit(open(ALICE, 600_000));
    cluster.run_for(ms(500));
    let leader = cluster.leader().unwrap();
    (cluster, leader)
}

#[test]
fn a_leader_that_writes_five_times_a_second_hands_over_within_a_second_and_a_half() {
    let (mut cluster, leader) = settled(3);
    let from = cluster.now;
    while cluster.leader() == Some(leader) {
        assert!(cluster.now - from < ms(1_500), "it still leads");
        write_slowly(&mut cluster, &[leader], ms(200));
    }
    cluster.commit(touch(ALICE));
}

#[test]
fn a_leader_with_a_few_slow_writes_stays() {
    let (mut cluster, leader) = settled(3);
    let term = cluster.replica(leader).leadership().term;
    for _ in 0..10 {
        write_slowly(&mut cluster, &[leader], ms(200));
        write_slowly(&mut cluster, &[leader], ms(200));
        cluster.run_for(ms(500));
    }
    assert_eq!((cluster.leader(), cluster.replica(leader).leadership().term), (Some(leader), term));
}

#[test]
fn a_leader_whose_writes_take_a_tenth_of_a_second_stays() {
    let (mut cluster, leader) = settled(3);
    for _ in 0..100 {
        write_slowly(&mut cluster, &[leader], ms(100));
    }
    assert_eq!(cluster.leader(), Some(leader));
}

#[test]
fn leadership_does_not_rotate_where_all_disks_are_slow() {
    let (mut cluster, leader) = settled(3);
    let first = cluster.replica(leader).leadership().term;
    let nodes = [1, 2, 3].map(NodeId);
    let from = cluster.now;
    while cluster.now - from < ms(30_000) {
        write_slowly(&mut cluster, &nodes, ms(200));
    }
    let leader = cluster.run_until_leader();
    let changes = cluster.replica(leader).leadership().term - first;
    // After a short leadership the next leader stays for twenty election timeouts, ten seconds or more.
    assert!(changes <= 5, "{changes} changes of leader in 30 s");
    cluster.commit(touch(ALICE));
}

#[test]
fn a_slow_leader_stays_if_no_other_voter_can_lead() {
    let (mut cluster, only) = settled(1);
    for _ in 0..20 {
        write_slowly(&mut cluster, &[only], ms(200));
        assert_eq!(cluster.leader(), Some(only));
    }
}
