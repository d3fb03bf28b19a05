//! What a turn may say, and what is recovered of it.

use holdfast_wal::{
    AppendError, ENTRY_BYTES_MAX, Options, SimDisk, SnapshotError, Wal, WriteError,
};

use crate::common::{
    append, entry, hard_state, indexes, open, owned, recovered, snapshot, take_snapshot,
};

#[test]
fn a_new_directory_is_an_empty_log() {
    let (wal, groups) = open(&SimDisk::new());
    assert!(groups.is_empty());
    assert_eq!(wal.stats().segments, 0);
}

#[test]
fn all_groups_of_a_turn_are_recovered() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    append(&mut wal, 2, 1, 3, b"b");
    wal.set_hard_state(2, hard_state(3, 7, 1));
    wal.sync_turn().unwrap();
    let groups = recovered(&disk);
    assert_eq!(groups[&1].entries, [owned(1, 1, b"a")]);
    assert_eq!(groups[&2].entries, [owned(1, 3, b"b")]);
    assert_eq!(groups[&2].hard_state, hard_state(3, 7, 1));
}

#[test]
fn a_turn_that_was_not_committed_leaves_nothing() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    assert!(recovered(&disk).is_empty());
}

#[test]
fn an_empty_turn_touches_no_disk() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    disk.start_trace();
    wal.sync_turn().unwrap();
    assert!(disk.take_trace().is_empty());
}

#[test]
fn a_turn_is_one_write_and_one_sync() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    disk.start_trace();
    for group in 1..=3 {
        append(&mut wal, group, if group == 1 { 2 } else { 1 }, 1, &[7; 300]);
    }
    wal.sync_turn().unwrap();
    let operations: Vec<_> = disk.take_trace().iter().map(|event| event.operation).collect();
    use holdfast_wal::Operation::{SyncData, Write};
    assert_eq!(operations, [Write, SyncData]);
}

#[test]
fn an_overwrite_cuts_the_tail_behind_it() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    for index in 1..=5 {
        append(&mut wal, 1, index, 1, b"old");
    }
    wal.sync_turn().unwrap();
    append(&mut wal, 1, 3, 2, b"new");
    wal.sync_turn().unwrap();
    let log = &recovered(&disk)[&1];
    let expected = [owned(1, 1, b"old"), owned(2, 1, b"old"), owned(3, 2, b"new")];
    assert_eq!(log.entries, expected);
}

#[test]
fn an_overwrite_within_a_snapshot_cuts_the_tail_behind_the_snapshot() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    for index in 1..=5 {
        append(&mut wal, 1, index, 1, b"old");
    }
    wal.sync_turn().unwrap();
    append(&mut wal, 1, 3, 2, b"new");
    append(&mut wal, 1, 4, 2, b"new");
    wal.sync_turn().unwrap();
    take_snapshot(&mut wal, 1, 4, 2);
    assert!(recovered(&disk)[&1].entries.is_empty());
}

#[test]
fn a_gap_is_refused_and_changes_nothing() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    let refused = wal.append(1, entry(3, 1, b"c"));
    assert_eq!(refused, Err(AppendError::Gap { group: 1, expected: 2, index: 3 }));
    append(&mut wal, 1, 2, 1, b"b");
    wal.sync_turn().unwrap();
    assert_eq!(indexes(&recovered(&disk)[&1]), [1, 2]);
}

#[test]
fn the_largest_entry_is_taken_and_none_larger() {
    let (mut wal, _) = open(&SimDisk::new());
    let mut data = vec![0; ENTRY_BYTES_MAX + 1];
    let refused = wal.append(1, entry(1, 1, &data));
    let (bytes, bytes_max) = (data.len(), ENTRY_BYTES_MAX);
    assert_eq!(refused, Err(AppendError::TooLarge { group: 1, index: 1, bytes, bytes_max }));
    data.pop();
    append(&mut wal, 1, 1, 1, &data);
}

#[test]
fn a_committed_entry_is_never_replaced() {
    let (mut wal, _) = open(&SimDisk::new());
    append(&mut wal, 1, 1, 1, b"a");
    append(&mut wal, 1, 2, 1, b"b");
    wal.set_hard_state(1, hard_state(1, 1, 1));
    wal.sync_turn().unwrap();
    let refused = wal.append(1, entry(1, 2, b"z"));
    assert_eq!(refused, Err(AppendError::Committed { group: 1, index: 1, commit: 1 }));
    append(&mut wal, 1, 2, 2, b"y");
}

#[test]
fn a_hard_state_may_precede_the_overwrite_that_it_commits() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    for index in 1..=3 {
        append(&mut wal, 1, index, 1, b"old");
    }
    wal.sync_turn().unwrap();
    wal.set_hard_state(1, hard_state(2, 0, 2));
    append(&mut wal, 1, 2, 2, b"new");
    wal.sync_turn().unwrap();
    assert_eq!(recovered(&disk)[&1].entries[1], owned(2, 2, b"new"));
}

#[test]
fn an_entry_within_the_snapshot_is_refused() {
    let (mut wal, _) = open(&SimDisk::new());
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    take_snapshot(&mut wal, 1, 1, 1);
    let refused = wal.append(1, entry(1, 2, b"z"));
    assert_eq!(refused, Err(AppendError::Compacted { group: 1, index: 1, snapshot: 1 }));
}

#[test]
fn a_commit_index_beyond_the_log_is_not_written() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    wal.set_hard_state(1, hard_state(1, 0, 2));
    let refused = wal.sync_turn();
    assert_eq!(refused, Err(WriteError::CommitBeyondLog { group: 1, commit: 2, last: 1 }));
    append(&mut wal, 1, 2, 1, b"b");
    wal.sync_turn().unwrap();
    assert_eq!(recovered(&disk)[&1].hard_state.commit, 2);
}

#[test]
fn a_turn_larger_than_a_segment_gets_a_segment_of_its_size() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"small");
    wal.sync_turn().unwrap();
    append(&mut wal, 1, 2, 1, &[9; 20_000]);
    wal.sync_turn().unwrap();
    append(&mut wal, 1, 3, 1, b"small");
    wal.sync_turn().unwrap();
    assert_eq!(wal.stats().segments, 3);
    let log = &recovered(&disk)[&1];
    assert_eq!(log.entries[1], owned(2, 1, &[9; 20_000]));
    assert_eq!(indexes(log), [1, 2, 3]);
}

#[test]
fn a_large_segment_has_the_size_that_was_asked_for() {
    // Zeroed in several steps, the last of which is smaller.
    const BYTES: u64 = (2 << 20) + 3 * 512;
    let disk = SimDisk::new();
    let (mut wal, _) = Wal::open(disk.clone(), Options { segment_bytes: BYTES }).unwrap();
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    assert_eq!(wal.stats().bytes, BYTES);
    assert_eq!(
        disk.content("log-0000000000000001.seg").map(|bytes| bytes.len() as u64),
        Some(BYTES)
    );
    assert_eq!(indexes(&recovered(&disk)[&1]), [1]);
}

#[test]
fn the_log_continues_after_it_was_reopened_with_another_segment_size() {
    let disk = SimDisk::new();
    for (index, segment_bytes) in (1..=6).zip([512, 4096, 1, 8192, 600, 4096]) {
        let (mut wal, _) = Wal::open(disk.clone(), Options { segment_bytes }).unwrap();
        append(&mut wal, 1, index, 1, &[1; 700]);
        wal.sync_turn().unwrap();
    }
    assert_eq!(indexes(&recovered(&disk)[&1]), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn an_installed_snapshot_restarts_the_log_behind_it() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    for index in 1..=3 {
        append(&mut wal, 1, index, 1, b"old");
    }
    wal.sync_turn().unwrap();
    wal.install_snapshot(1, &snapshot(100, 5, b"sent")).unwrap();
    append(&mut wal, 1, 101, 5, b"new");
    wal.set_hard_state(1, hard_state(5, 0, 101));
    wal.sync_turn().unwrap();
    let log = &recovered(&disk)[&1];
    assert_eq!(log.snapshot, Some(snapshot(100, 5, b"sent")));
    assert_eq!(log.entries, [owned(101, 5, b"new")]);
}

#[test]
fn an_installed_snapshot_drops_entries_that_contradict_it_before_the_next_commit() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    for index in 1..=9 {
        append(&mut wal, 1, index, 3, b"old");
    }
    wal.set_hard_state(1, hard_state(3, 2, 1));
    wal.sync_turn().unwrap();
    wal.install_snapshot(1, &snapshot(5, 4, b"sent")).unwrap();
    let log = &recovered(&disk)[&1];
    assert!(log.entries.is_empty());
    assert_eq!(log.hard_state, hard_state(4, 0, 5));
}

#[test]
fn a_restart_interrupted_by_a_crash_is_completed() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"old");
    wal.sync_turn().unwrap();
    wal.install_snapshot(1, &snapshot(100, 5, b"sent")).unwrap();
    drop(wal);
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 101, 5, b"new");
    wal.sync_turn().unwrap();
    take_snapshot(&mut wal, 1, 101, 5);
    append(&mut wal, 1, 102, 5, b"newer");
    wal.sync_turn().unwrap();
    assert_eq!(indexes(&recovered(&disk)[&1]), [102]);
}

#[test]
fn a_complete_log_has_no_pending_restart_when_it_is_opened() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"old");
    append(&mut wal, 2, 1, 1, b"own");
    wal.sync_turn().unwrap();
    wal.install_snapshot(1, &snapshot(100, 5, b"sent")).unwrap();
    take_snapshot(&mut wal, 2, 1, 1);
    wal.sync_turn().unwrap();
    let (mut wal, _) = open(&disk);
    disk.start_trace();
    wal.sync_turn().unwrap();
    assert!(disk.take_trace().is_empty());
}

/// The caller broke the contract and then crashed.
#[test]
fn a_snapshot_that_is_found_beyond_its_log_restarts_it() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"old");
    wal.sync_turn().unwrap();
    let _beyond = wal.snapshot_writer().write(1, &snapshot(5, 1, b"state")).unwrap();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 6, 1, b"new");
    wal.sync_turn().unwrap();
    assert_eq!(indexes(&recovered(&disk)[&1]), [6]);
}

#[test]
fn entries_that_a_snapshot_dropped_do_not_come_back_with_the_next_one() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    wal.install_snapshot(1, &snapshot(100, 5, b"sent")).unwrap();
    append(&mut wal, 1, 101, 5, b"dropped");
    wal.sync_turn().unwrap();
    wal.install_snapshot(1, &snapshot(100, 5, b"sent again")).unwrap();
    drop(wal);
    let (mut wal, _) = open(&disk);
    append(&mut wal, 2, 1, 1, b"another group");
    wal.sync_turn().unwrap();
    take_snapshot(&mut wal, 1, 100, 5);
    assert_eq!(indexes(&recovered(&disk)[&1]), [0; 0]);
}

#[test]
fn a_snapshot_never_undoes_what_is_committed() {
    let (mut wal, _) = open(&SimDisk::new());
    append(&mut wal, 1, 1, 1, b"a");
    append(&mut wal, 1, 2, 1, b"b");
    wal.set_hard_state(1, hard_state(1, 0, 2));
    wal.sync_turn().unwrap();
    let refused = wal.install_snapshot(1, &snapshot(1, 1, b"sent"));
    assert_eq!(refused, Err(SnapshotError::BeforeCommit { group: 1, index: 1, commit: 2 }));
}

#[test]
fn a_snapshot_of_its_own_log_is_never_beyond_it() {
    let (mut wal, _) = open(&SimDisk::new());
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    let written = wal.snapshot_writer().write(1, &snapshot(2, 1, b"state")).unwrap();
    let refused = wal.snapshot_written(written);
    assert_eq!(refused, Err(SnapshotError::BeyondLog { group: 1, index: 2, last: 1 }));
}
