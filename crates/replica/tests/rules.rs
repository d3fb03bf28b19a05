//! New rules of the lock table begin with an entry in the log, when every member reads it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[allow(dead_code, reason = "each test uses its own part")]
mod cluster;

use std::time::Duration;

use cluster::Cluster;
use holdfast_core::RulesVersion;
use holdfast_replica::NodeId;

/// What an old build reads, the one before this, and this one.
const OLD: u32 = 2;
const BEFORE: u32 = 9;
const NEW: u32 = 10;

fn rules(cluster: &Cluster) -> [RulesVersion; 3] {
    [1, 2, 3].map(|node| cluster.replica(NodeId(node)).table().rules())
}

/// Every node is told what each node reads.
fn tell(cluster: &mut Cluster, reads: [u32; 3]) {
    for node in [1, 2, 3].map(NodeId) {
        for (other, version) in [1, 2, 3].map(NodeId).into_iter().zip(reads) {
            cluster.replica_mut(node).handle_log_version(other, version);
        }
    }
}

#[test]
fn rules_are_adopted_when_the_last_member_reads_them_and_survive_a_restart() {
    let mut cluster = Cluster::new(3);
    cluster.run_until_leader();
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(rules(&cluster), [RulesVersion::ONE; 3], "it has met no member");
    tell(&mut cluster, [NEW, NEW, OLD]);
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(rules(&cluster), [RulesVersion::ONE; 3], "one member does not read them");
    tell(&mut cluster, [NEW, NEW, BEFORE]);
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(rules(&cluster), [RulesVersion::EIGHT; 3], "one member does not read the newest");
    tell(&mut cluster, [NEW, NEW, NEW]);
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(rules(&cluster), [RulesVersion::ADOPTED; 3]);
    cluster.kill(NodeId(2));
    cluster.start(NodeId(2));
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(rules(&cluster), [RulesVersion::ADOPTED; 3]);
}

#[test]
fn rules_are_adopted_by_the_next_leader_if_the_first_is_deposed_before_the_commit() {
    let mut cluster = Cluster::new(3);
    let first = cluster.run_until_leader();
    cluster.run_for(Duration::from_secs(1));
    cluster.isolate(first);
    tell(&mut cluster, [NEW, NEW, NEW]);
    cluster.run_for(Duration::from_secs(5));
    cluster.heal();
    cluster.run_for(Duration::from_secs(5));
    assert_ne!(cluster.leader(), Some(first));
    assert_eq!(rules(&cluster), [RulesVersion::ADOPTED; 3]);
}

#[test]
fn a_single_node_adopts_the_newest_rules_at_once() {
    let mut cluster = Cluster::new(1);
    cluster.replica_mut(NodeId(1)).handle_log_version(NodeId(1), NEW);
    cluster.run_until_leader();
    cluster.run_for(Duration::from_millis(100));
    assert_eq!(cluster.replica(NodeId(1)).table().rules(), RulesVersion::ADOPTED);
}
