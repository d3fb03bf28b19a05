//! Each directory operation is durable before the log relies on it.

use holdfast_wal::{Operation, SimDisk, TraceEvent};

use crate::common::{append, open, recovered, snapshot, take_snapshot};

/// Renames and removals are followed by a sync of the directory before any other file is touched. A
/// file that is created needs it only when it gets its final name, which is a rename.
fn assert_synced(trace: &[TraceEvent]) {
    let mut pending: Option<&TraceEvent> = None;
    for event in trace {
        match event.operation {
            Operation::SyncDir => pending = None,
            Operation::Rename | Operation::Remove => {
                assert!(pending.is_none(), "{event:?} before {pending:?} was synced");
                pending = Some(event);
            }
            Operation::Create | Operation::Open | Operation::Write | Operation::SyncData => {
                assert!(pending.is_none(), "{event:?} before {pending:?} was synced");
            }
        }
    }
    assert!(pending.is_none(), "{pending:?} was never synced");
}

fn count(trace: &[TraceEvent], operation: Operation) -> usize {
    trace.iter().filter(|event| event.operation == operation).count()
}

#[test]
fn each_rename_and_each_removal_is_followed_by_a_sync_of_the_directory() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    disk.start_trace();
    for index in 1..=30 {
        append(&mut wal, 1, index, 1, &[3; 600]);
        wal.sync_turn().unwrap();
    }
    take_snapshot(&mut wal, 1, 10, 1);
    take_snapshot(&mut wal, 1, 29, 1);
    wal.install_snapshot(1, &snapshot(99, 4, b"sent")).unwrap();
    wal.sync_turn().unwrap();
    let trace = disk.take_trace();
    assert!(count(&trace, Operation::Create) > 8 && count(&trace, Operation::Remove) > 8);
    assert_synced(&trace);
}

#[test]
fn a_segment_is_zeroed_and_synced_before_it_has_its_name() {
    use Operation::{Create, Rename, SyncData, SyncDir, Write};
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    disk.start_trace();
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    let operations: Vec<_> = disk.take_trace().iter().map(|event| event.operation).collect();
    assert_eq!(operations, [Create, Write, SyncData, Rename, SyncDir, Write, SyncData]);
}

#[test]
fn a_snapshot_is_synced_before_it_has_its_name() {
    use Operation::{Create, Rename, SyncData, SyncDir, Write};
    let disk = SimDisk::new();
    let (wal, _) = open(&disk);
    disk.start_trace();
    let _written = wal.snapshot_writer().write(1, &snapshot(1, 1, b"state")).unwrap();
    let operations: Vec<_> = disk.take_trace().iter().map(|event| event.operation).collect();
    assert_eq!(operations, [Create, Write, Write, SyncData, Rename, SyncDir]);
}

#[test]
fn a_large_snapshot_is_synced_while_it_is_written() {
    use Operation::{SyncData, Write};
    let disk = SimDisk::new();
    let (wal, _) = open(&disk);
    let large = snapshot(1, 1, &vec![7; 5 << 20]);
    disk.start_trace();
    let _written = wal.snapshot_writer().write(1, &large).unwrap();
    let operations: Vec<_> = disk.take_trace().iter().map(|event| event.operation).collect();
    let expected = [Write, Write, SyncData, Write, SyncData, Write, SyncData];
    assert_eq!(operations[1..8], expected);
    drop(wal);
    assert_eq!(recovered(&disk.crashed(|_| false))[&1].snapshot, Some(large));
}

#[test]
fn opening_removes_leftovers_durably() {
    use holdfast_wal::Disk;
    let disk = SimDisk::new();
    disk.create("1.tmp").unwrap();
    disk.sync_dir().unwrap();
    open(&disk);
    assert!(disk.unsynced().is_empty());
    assert!(disk.crashed(|_| false).list().unwrap().is_empty());
}
