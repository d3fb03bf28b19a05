//! Which segments and snapshots are kept, and for how long.

use holdfast_wal::{SimDisk, Stats};

use crate::common::{append, hard_state, indexes, names, open, recovered, snapshot, take_snapshot};

/// Appends entries of one turn each; a segment takes seven of them, or a few less.
fn fill(wal: &mut holdfast_wal::Wal<SimDisk>, group: u32, indexes: std::ops::RangeInclusive<u64>) {
    for index in indexes {
        append(wal, group, index, 1, b"entry");
        wal.sync_turn().unwrap();
    }
}

#[test]
fn segments_that_all_snapshots_cover_are_deleted() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    fill(&mut wal, 1, 1..=20);
    fill(&mut wal, 2, 1..=20);
    assert_eq!(names(&disk, ".seg").len(), 5);
    take_snapshot(&mut wal, 1, 20, 1);
    assert_eq!(names(&disk, ".seg").len(), 3);
    take_snapshot(&mut wal, 2, 20, 1);
    assert_eq!(names(&disk, ".seg").len(), 1);
    wal.sync_turn().unwrap();
    assert_eq!(wal.stats(), Stats { segments: 1, bytes: 4096 });
    fill(&mut wal, 1, 21..=22);
    let groups = recovered(&disk);
    assert_eq!((indexes(&groups[&1]), indexes(&groups[&2])), (vec![21, 22], vec![]));
}

#[test]
fn a_quiet_group_that_pins_the_oldest_segment_is_named() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 7, 1, 1, b"quiet");
    fill(&mut wal, 1, 1..=20);
    assert_eq!(wal.groups_pinning_oldest(), [1, 7]);
    take_snapshot(&mut wal, 1, 20, 1);
    assert_eq!(wal.groups_pinning_oldest(), [7]);
    assert_eq!(open(&disk).0.groups_pinning_oldest(), [7]);
    take_snapshot(&mut wal, 7, 1, 1);
    assert!(wal.groups_pinning_oldest().is_empty());
    assert_eq!(wal.stats().segments, 1);
}

#[test]
fn the_hard_state_of_a_quiet_group_outlives_the_segment_it_was_written_to() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    wal.set_hard_state(7, hard_state(3, 2, 0));
    fill(&mut wal, 1, 1..=30);
    take_snapshot(&mut wal, 1, 30, 1);
    assert_eq!(names(&disk, ".seg").len(), 1);
    assert!(!names(&disk, ".seg").contains(&"log-0000000000000001.seg".to_owned()));
    assert_eq!(recovered(&disk)[&7].hard_state, hard_state(3, 2, 0));
}

#[test]
fn an_installed_snapshot_frees_the_segments_of_the_entries_it_drops() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    fill(&mut wal, 1, 1..=20);
    wal.install_snapshot(1, &snapshot(10, 2, b"sent")).unwrap();
    assert_eq!(names(&disk, ".seg").len(), 1);
    assert_eq!(recovered(&disk)[&1].snapshot, Some(snapshot(10, 2, b"sent")));
}

#[test]
fn entries_that_an_installed_snapshot_dropped_within_the_turn_pin_nothing() {
    let (mut wal, _) = open(&SimDisk::new());
    for index in 1..=9 {
        append(&mut wal, 1, index, 1, b"dropped");
    }
    wal.install_snapshot(1, &snapshot(3, 2, b"sent")).unwrap();
    wal.sync_turn().unwrap();
    fill(&mut wal, 2, 1..=20);
    assert_eq!(wal.groups_pinning_oldest(), [2]);
}

#[test]
fn a_newer_snapshot_replaces_the_older_one() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    fill(&mut wal, 1, 1..=5);
    take_snapshot(&mut wal, 1, 2, 1);
    take_snapshot(&mut wal, 1, 4, 1);
    assert_eq!(names(&disk, ".snap"), ["snap-1-0000000000000004.snap"]);
}

#[test]
fn a_snapshot_that_was_overtaken_by_an_installed_one_is_discarded() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    fill(&mut wal, 1, 1..=5);
    let slow = wal.snapshot_writer().write(1, &snapshot(3, 1, b"own")).unwrap();
    wal.install_snapshot(1, &snapshot(50, 2, b"sent")).unwrap();
    wal.snapshot_written(slow).unwrap();
    assert_eq!(names(&disk, ".snap"), ["snap-1-0000000000000032.snap"]);
}

#[test]
fn deferred_garbage_stays_until_it_is_removed_oldest_first() {
    use holdfast_wal::Disk;
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    wal.defer_removal();
    fill(&mut wal, 1, 1..=30);
    take_snapshot(&mut wal, 1, 2, 1);
    take_snapshot(&mut wal, 1, 30, 1);
    let before = disk.list().unwrap();
    let garbage = wal.take_garbage().unwrap();
    assert!(wal.take_garbage().is_none(), "it is to be had once");
    assert_eq!(disk.list().unwrap(), before);
    disk.start_trace();
    garbage.remove().unwrap();
    let trace = disk.take_trace();
    let removed = trace.iter().filter(|event| event.operation == holdfast_wal::Operation::Remove);
    let removed: Vec<&str> = removed.map(|event| event.name.as_str()).collect();
    let segments = removed.iter().filter(|name| name.ends_with(".seg"));
    assert!(segments.clone().count() > 1 && segments.is_sorted(), "{removed:?}");
    assert_eq!(names(&disk, ".snap"), ["snap-1-000000000000001e.snap"]);
}

#[test]
fn a_spare_segment_is_used_before_another_is_made() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    assert!(wal.spare_wanted());
    let spare = wal.segment_preparer().prepare().unwrap();
    wal.add_spare(spare);
    assert!(!wal.spare_wanted());
    disk.start_trace();
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    let operations: Vec<_> = disk.take_trace().iter().map(|event| event.operation).collect();
    use holdfast_wal::Operation::{Rename, SyncData, SyncDir, Write};
    assert_eq!(operations, [Rename, SyncDir, Write, SyncData]);
    assert!(!wal.spare_wanted());
    fill(&mut wal, 1, 2..=4);
    assert!(wal.spare_wanted());
}

#[test]
fn temporary_files_are_removed_and_files_of_others_are_kept() {
    use holdfast_wal::Disk;
    let disk = SimDisk::new();
    for name in ["17.tmp", "node-id", "notes.tmp"] {
        disk.create(name).unwrap();
    }
    open(&disk);
    assert_eq!(disk.list().unwrap(), ["node-id", "notes.tmp"]);
}
