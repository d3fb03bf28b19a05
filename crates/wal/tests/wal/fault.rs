//! What the log answers when the disk fails, and what it does ever after.

use std::io::ErrorKind;

use holdfast_wal::{
    AppendError, FatalError, OpenError, Operation, Options, SimDisk, SnapshotError, Wal, WriteError,
};

use crate::common::{
    SMALL, append, entry, hard_state, indexes, names, open, recovered, snapshot, take_snapshot,
};

/// EIO has no stable kind of its own.
const IO_ERROR: ErrorKind = ErrorKind::Other;

fn log_with_one_entry() -> (SimDisk, Wal<SimDisk>) {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    (disk, wal)
}

fn fatal(error: WriteError) -> FatalError {
    match error {
        WriteError::Fatal(fatal) => fatal,
        other => panic!("{other}"),
    }
}

fn assert_every_call_fails(wal: &mut Wal<SimDisk>, first: &FatalError) {
    for _ in 0..3 {
        assert_eq!(wal.sync_turn(), Err(WriteError::Fatal(first.clone())));
        assert_eq!(wal.append(1, entry(3, 1, b"c")), Err(AppendError::Fatal(first.clone())));
        let refused = Err(SnapshotError::Write(WriteError::Fatal(first.clone())));
        assert_eq!(wal.install_snapshot(1, &snapshot(9, 9, b"")), refused);
        let refused = wal.snapshot_writer().write(1, &snapshot(1, 1, b"")).map(|_| ());
        assert_eq!(refused, Err(WriteError::Fatal(first.clone())));
        let refused = wal.segment_preparer().prepare().map(|_| ());
        assert_eq!(refused, Err(WriteError::Fatal(first.clone())));
    }
}

#[test]
fn a_failed_sync_is_fatal_and_never_tried_again() {
    let (disk, mut wal) = log_with_one_entry();
    disk.fail_after(Operation::SyncData, 0, IO_ERROR);
    append(&mut wal, 1, 2, 1, b"b");
    let first = fatal(wal.sync_turn().unwrap_err());
    disk.start_trace();
    assert_every_call_fails(&mut wal, &first);
    assert!(disk.take_trace().is_empty());
}

#[test]
fn a_full_disk_that_shows_only_at_the_sync_is_fatal_too() {
    let (disk, mut wal) = log_with_one_entry();
    disk.fail_after(Operation::SyncData, 0, ErrorKind::StorageFull);
    append(&mut wal, 1, 2, 1, b"b");
    let first = fatal(wal.sync_turn().unwrap_err());
    assert_every_call_fails(&mut wal, &first);
}

#[test]
fn a_failed_write_is_fatal() {
    let (disk, mut wal) = log_with_one_entry();
    disk.fail_after(Operation::Write, 0, IO_ERROR);
    append(&mut wal, 1, 2, 1, b"b");
    let first = fatal(wal.sync_turn().unwrap_err());
    assert_every_call_fails(&mut wal, &first);
}

#[test]
fn a_failed_sync_of_a_snapshot_poisons_the_log() {
    let (disk, mut wal) = log_with_one_entry();
    let writer = wal.snapshot_writer();
    disk.fail_after(Operation::SyncData, 0, IO_ERROR);
    let first = fatal(writer.write(1, &snapshot(1, 1, b"state")).unwrap_err());
    assert_every_call_fails(&mut wal, &first);
}

#[test]
fn a_full_disk_that_shows_at_a_sync_within_a_snapshot_is_fatal_too() {
    let (disk, mut wal) = log_with_one_entry();
    let writer = wal.snapshot_writer();
    disk.fail_after(Operation::SyncData, 0, ErrorKind::StorageFull);
    let large = vec![7; 5 << 20];
    let first = fatal(writer.write(1, &snapshot(1, 1, &large)).unwrap_err());
    assert_every_call_fails(&mut wal, &first);
}

/// Of four chunks, each synced before the next.
fn log_with_large_segments(disk: &SimDisk) -> Wal<SimDisk> {
    Wal::open(disk.clone(), Options { segment_bytes: 2 << 20 }).unwrap().0
}

#[test]
fn a_failed_sync_within_a_segment_that_is_prepared_poisons_the_log() {
    for (successes, error) in [(0, IO_ERROR), (2, IO_ERROR), (1, ErrorKind::StorageFull)] {
        let disk = SimDisk::new();
        let mut wal = log_with_large_segments(&disk);
        disk.fail_after(Operation::SyncData, successes, error);
        let first = fatal(wal.segment_preparer().prepare().unwrap_err());
        assert_every_call_fails(&mut wal, &first);
    }
}

#[test]
fn a_segment_that_there_is_no_room_for_leaves_nothing_behind_and_can_be_tried_again() {
    for successes in 0..4 {
        let disk = SimDisk::new();
        let mut wal = log_with_large_segments(&disk);
        disk.fail_after(Operation::Write, successes, ErrorKind::StorageFull);
        let refused = wal.segment_preparer().prepare().unwrap_err();
        assert!(matches!(refused, WriteError::NoSpace { .. }), "{refused}");
        assert!(names(&disk, "").is_empty());
        wal.add_spare(wal.segment_preparer().prepare().unwrap());
        append(&mut wal, 1, 1, 1, b"a");
        wal.sync_turn().unwrap();
    }
}

#[test]
fn a_crash_while_a_segment_is_prepared_leaves_a_log_that_opens() {
    let disk = SimDisk::new();
    let mut wal = log_with_large_segments(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    disk.start_moments();
    let spare = wal.segment_preparer().prepare().unwrap();
    let moments = disk.take_moments();
    assert!(moments.len() > 8, "before each write and each sync");
    for moment in moments {
        assert_eq!(indexes(&recovered(&moment.crashed(|_| true))[&1]), [1]);
        assert_eq!(indexes(&recovered(&moment.crashed(|_| false))[&1]), [1]);
    }
    drop(spare);
}

#[test]
fn each_failed_step_of_a_new_segment_is_fatal() {
    for (operation, successes) in [
        (Operation::Create, 0),
        (Operation::Write, 0),
        (Operation::SyncData, 0),
        (Operation::Rename, 0),
        (Operation::SyncDir, 0),
        (Operation::Write, 1),
        (Operation::SyncData, 1),
    ] {
        let disk = SimDisk::new();
        let (mut wal, _) = open(&disk);
        disk.fail_after(operation, successes, IO_ERROR);
        append(&mut wal, 1, 1, 1, b"a");
        append(&mut wal, 1, 2, 1, b"b");
        let first = fatal(wal.sync_turn().unwrap_err());
        assert_every_call_fails(&mut wal, &first);
        assert!(recovered(&disk.crashed(|_| false)).is_empty());
    }
}

/// After a failed sync the operating system still shows the blocks, but calls them clean. A restarted
/// process that trusted what it reads would lose it with the next power failure.
#[test]
fn what_is_recovered_after_a_failed_sync_is_durable() {
    let (disk, mut wal) = log_with_one_entry();
    disk.fail_after(Operation::SyncData, 0, IO_ERROR);
    append(&mut wal, 1, 2, 1, b"b");
    wal.sync_turn().unwrap_err();
    assert_eq!(indexes(&recovered(&disk.crashed(|_| false))[&1]), [1]);
    let seen = recovered(&disk);
    assert_eq!(indexes(&seen[&1]), [1, 2]);
    assert_eq!(recovered(&disk.crashed(|_| false)), seen);
}

#[test]
fn a_full_disk_refuses_the_turn_and_takes_it_once_there_is_room() {
    let (disk, mut wal) = log_with_one_entry();
    disk.set_capacity_bytes(Some(4096));
    append(&mut wal, 1, 2, 1, &[2; 4000]);
    for _ in 0..3 {
        assert!(matches!(wal.sync_turn(), Err(WriteError::NoSpace { .. })));
        assert_eq!(indexes(&recovered(&disk.crashed(|_| true))[&1]), [1]);
        assert!(names(&disk, ".tmp").is_empty(), "the space is given back");
    }
    append(&mut wal, 1, 3, 1, b"c");
    disk.set_capacity_bytes(None);
    wal.sync_turn().unwrap();
    assert_eq!(indexes(&recovered(&disk)[&1]), [1, 2, 3]);
}

/// As the process's limit on the size of files says it.
#[test]
fn a_file_that_may_not_grow_refuses_the_turn_and_takes_it_once_it_may() {
    let (disk, mut wal) = log_with_one_entry();
    disk.fail_after(Operation::Write, 0, ErrorKind::FileTooLarge);
    append(&mut wal, 1, 2, 1, b"b");
    assert!(matches!(wal.sync_turn(), Err(WriteError::NoSpace { .. })));
    wal.sync_turn().unwrap();
    assert_eq!(indexes(&recovered(&disk)[&1]), [1, 2]);
}

#[test]
fn a_turn_written_in_part_before_the_disk_was_full_is_completed_unchanged() {
    let (disk, mut wal) = log_with_one_entry();
    disk.fail_after(Operation::Write, 0, ErrorKind::StorageFull);
    append(&mut wal, 1, 2, 1, &[2; 1000]);
    assert!(matches!(wal.sync_turn(), Err(WriteError::NoSpace { .. })));
    assert_eq!(indexes(&recovered(&disk.crashed(|_| true))[&1]), [1]);
    append(&mut wal, 1, 2, 2, b"other");
    wal.sync_turn().unwrap();
    let log = &recovered(&disk)[&1];
    assert_eq!((indexes(log), log.entries[1].term), (vec![1, 2], 2));
}

#[test]
fn old_segments_stay_while_the_first_turn_of_the_next_is_not_durable() {
    let (disk, mut wal) = log_with_one_entry();
    wal.set_hard_state(7, hard_state(3, 2, 0));
    wal.sync_turn().unwrap();
    // The first write zeroes the new segment, the second is the turn.
    disk.fail_after(Operation::Write, 1, ErrorKind::StorageFull);
    append(&mut wal, 1, 2, 1, &[2; 3500]);
    assert!(matches!(wal.sync_turn(), Err(WriteError::NoSpace { .. })));
    take_snapshot(&mut wal, 1, 1, 1);
    assert_eq!(recovered(&disk.crashed(|_| false))[&7].hard_state, hard_state(3, 2, 0));
    wal.sync_turn().unwrap();
    assert!(!names(&disk, ".seg").contains(&"log-0000000000000001.seg".to_owned()));
    assert_eq!(recovered(&disk.crashed(|_| false))[&7].hard_state, hard_state(3, 2, 0));
}

#[test]
fn a_turn_in_flight_is_finished_before_a_snapshot_makes_it_void() {
    let (disk, mut wal) = log_with_one_entry();
    disk.fail_after(Operation::Write, 0, ErrorKind::StorageFull);
    append(&mut wal, 1, 2, 1, b"contradicts the snapshot");
    append(&mut wal, 1, 3, 1, b"contradicts the snapshot");
    assert!(matches!(wal.sync_turn(), Err(WriteError::NoSpace { .. })));
    wal.install_snapshot(1, &snapshot(2, 5, b"sent")).unwrap();
    disk.start_moments();
    wal.sync_turn().unwrap();
    for moment in disk.take_moments() {
        let log = &recovered(&moment.crashed(|_| true))[&1];
        assert_eq!((log.snapshot.as_ref().unwrap().index, indexes(log)), (2, vec![]));
    }
}

#[test]
fn a_snapshot_that_does_not_fit_leaves_nothing_behind() {
    let (disk, mut wal) = log_with_one_entry();
    disk.set_capacity_bytes(Some(5000));
    let big = snapshot(1, 1, &[0; 3000]);
    let refused = wal.snapshot_writer().write(1, &big);
    assert!(matches!(refused, Err(WriteError::NoSpace { .. })));
    let refused = wal.install_snapshot(1, &snapshot(8, 1, &[0; 3000]));
    assert!(matches!(refused, Err(SnapshotError::Write(WriteError::NoSpace { .. }))));
    assert_eq!(names(&disk, "").len(), 1);
    append(&mut wal, 1, 2, 1, b"b");
    wal.sync_turn().unwrap();
    assert_eq!(indexes(&recovered(&disk)[&1]), [1, 2]);
}

#[test]
fn an_open_that_cannot_make_the_tail_durable_fails() {
    for operation in [Operation::Write, Operation::SyncData, Operation::SyncDir] {
        let (disk, _) = log_with_one_entry();
        disk.fail_after(operation, 0, IO_ERROR);
        let refused = Wal::open(disk.clone(), SMALL).map(|_| ());
        assert!(matches!(refused, Err(OpenError::Io { .. })), "{operation:?}");
    }
}
