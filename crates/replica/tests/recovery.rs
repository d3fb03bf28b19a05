//! Backups of a running group, and what is made of the one node that is left.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod cluster;

use bytes::Bytes;
use cluster::{Cluster, Ended, acquire, open};
use holdfast_core::{Batch, LogicalTime, RequestId, SessionId};
use holdfast_replica::{Durable, HardState, LogEntry, NodeId, read_snapshot, salvage};

const ALICE: SessionId = SessionId(0xa11ce);

/// A backup by way of a linearizable read.
fn back_up(cluster: &mut Cluster) -> holdfast_replica::SnapshotFile {
    let leader = cluster.run_until_leader();
    let ticket = cluster.read(leader);
    assert!(matches!(cluster.run_until_ended(ticket), Ended::Read));
    cluster.ended.remove(&ticket);
    cluster.replica_mut(leader).handle_backup(ticket);
    match cluster.run_until_ended(ticket) {
        Ended::BackedUp(file) => file,
        other => panic!("no backup: {other:?}"),
    }
}

#[test]
fn a_backup_has_all_that_was_acknowledged_before_it_was_asked_for() {
    let mut cluster = Cluster::new(3);
    cluster.commit(open(ALICE, 60_000));
    for number in 0..40 {
        cluster.acquire(ALICE, &format!("lock-{number}"));
    }
    let (_, table) = read_snapshot(&back_up(&mut cluster).data).unwrap();
    assert_eq!(table.lock_count(), 40);
}

#[test]
fn a_snapshot_that_is_under_way_already_is_too_old_for_a_backup() {
    let mut cluster = Cluster::new(1);
    let leader = cluster.run_until_leader();
    cluster.commit(open(ALICE, 60_000));
    for number in 0..40 {
        cluster.acquire(ALICE, &format!("lock-{number}"));
    }
    // It takes several turns, and one more lock is acknowledged meanwhile.
    cluster.replica_mut(leader).request_snapshot();
    cluster.step();
    assert!(cluster.replica(leader).is_writing_snapshot(), "it is written at once");
    let request = cluster.request();
    let granted = cluster.call(leader, acquire(ALICE, request, "meanwhile"));
    let read = cluster.read(leader);
    cluster.step();
    let (Some(Ended::Answer(..)), Some(Ended::Read)) =
        (cluster.ended.remove(&granted), cluster.ended.remove(&read))
    else {
        panic!("not within a step: {:?}", cluster.ended);
    };
    assert!(cluster.replica(leader).is_writing_snapshot(), "it was done too soon for this test");
    cluster.replica_mut(leader).handle_backup(read);
    let Ended::BackedUp(file) = cluster.run_until_ended(read) else { panic!("no backup") };
    assert_eq!(read_snapshot(&file.data).unwrap().1.lock_count(), 41);
}

#[test]
fn all_of_a_survivors_log_counts_whether_it_was_committed_or_not() {
    let batch =
        |number: u64, command| Batch { at: LogicalTime::from_ms(number), commands: vec![command] };
    let entry = |index: u64, command| LogEntry {
        index,
        term: 1,
        kind: 0,
        data: Bytes::from(batch(index, command).encode()),
    };
    let entries = vec![
        entry(1, open(ALICE, 60_000)),
        entry(2, acquire(ALICE, RequestId(1), "committed")),
        entry(3, acquire(ALICE, RequestId(2), "perhaps acknowledged")),
    ];
    // It has voted in terms of which it has no entry.
    let hard_state = HardState { term: 5, vote: 1, commit: 2 };
    let durable = Durable { hard_state, snapshot: None, entries };
    let config = Cluster::new(3).config(NodeId(2));
    let state = salvage(config, durable).unwrap();
    assert_eq!(state.term, 5);
    let (membership, table) = read_snapshot(&state.data).unwrap();
    assert_eq!((state.index, table.lock_count()), (3, 2));
    assert_eq!(membership.configuration.voters.len(), 3);
    assert_eq!(table.now(), LogicalTime::from_ms(3));
}
