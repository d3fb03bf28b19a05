//! A process that has no file descriptors left has a disk that is all right.

use holdfast_wal::{Operation, Options, SimDisk, Wal, WriteError};

use crate::common::{append, names, open, recovered, snapshot};

/// Too many open files: of the process, of the machine; no memory.
const OS_ERRORS: [i32; 3] = [24, 23, 12];

fn is_not_now(error: &WriteError) -> bool {
    matches!(error, WriteError::NotNow { .. }) && error.may_be_tried_again()
}

#[test]
fn a_commit_that_finds_no_descriptor_for_a_segment_is_tried_again_and_loses_nothing() {
    for operation in [Operation::Create, Operation::Open] {
        for number in OS_ERRORS {
            let disk = SimDisk::new();
            let (mut wal, _) = open(&disk);
            append(&mut wal, 1, 1, 1, b"a");
            disk.fail_after_with_os_error(operation, 0, number);
            let error = wal.sync_turn().unwrap_err();
            assert!(is_not_now(&error), "{operation:?} {number}: {error}");
            assert!(names(&disk, "").is_empty(), "nothing is left behind");
            append(&mut wal, 1, 2, 1, b"b");
            wal.sync_turn().unwrap();
            let logs = recovered(&disk.crashed(|_| false));
            assert_eq!(logs[&1].entries.len(), 2, "{operation:?} {number}");
        }
    }
}

#[test]
fn a_snapshot_and_a_spare_segment_that_find_no_descriptor_are_tried_again() {
    let disk = SimDisk::new();
    let (mut wal, _) = Wal::open(disk.clone(), Options::default()).unwrap();
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    disk.fail_after_with_os_error(Operation::Create, 0, OS_ERRORS[0]);
    let error = wal.snapshot_writer().write(1, &snapshot(1, 1, b"state")).map(|_| ()).unwrap_err();
    assert!(is_not_now(&error), "{error}");
    let written = wal.snapshot_writer().write(1, &snapshot(1, 1, b"state")).unwrap();
    wal.snapshot_written(written).unwrap();
    disk.fail_after_with_os_error(Operation::Open, 0, OS_ERRORS[0]);
    let error = wal.segment_preparer().prepare().map(|_| ()).unwrap_err();
    assert!(is_not_now(&error), "{error}");
    wal.add_spare(wal.segment_preparer().prepare().unwrap());
    wal.sync_turn().unwrap();
}

/// The bytes of the log may be on the disk or not.
#[test]
fn descriptor_errors_of_a_write_or_a_sync_are_fatal() {
    for operation in [Operation::Write, Operation::SyncData, Operation::SyncDir] {
        let disk = SimDisk::new();
        let (mut wal, _) = open(&disk);
        append(&mut wal, 1, 1, 1, b"a");
        disk.fail_after_with_os_error(operation, 0, OS_ERRORS[0]);
        let error = wal.sync_turn().unwrap_err();
        assert!(matches!(error, WriteError::Fatal(_)), "{operation:?}: {error}");
    }
}
