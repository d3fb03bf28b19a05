//! The same log on real files.

use std::fs;

use holdfast_wal::{DirectoryError, Disk, DiskFile, FileDisk, OpenError, Options, Wal};

use crate::common::{SMALL, append, hard_state, indexes, open, snapshot, take_snapshot};

#[test]
fn a_log_on_real_files_is_recovered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node").join("data");
    for reopened in 0..5 {
        let (mut wal, groups) = open(&FileDisk::open(&path).unwrap());
        let first = groups.get(&1).map_or(1, |log| log.hard_state.commit + 1);
        assert_eq!(first, reopened * 10 + 1);
        for index in first..first + 10 {
            append(&mut wal, 1, index, 1, &[7; 300]);
            wal.set_hard_state(1, hard_state(1, 1, index));
            wal.sync_turn().unwrap();
        }
        take_snapshot(&mut wal, 1, first + 4, 1);
    }
    let (mut wal, groups) = open(&FileDisk::open(&path).unwrap());
    assert_eq!(indexes(&groups[&1]), [46, 47, 48, 49, 50]);
    wal.install_snapshot(1, &snapshot(90, 2, b"sent")).unwrap();
    wal.sync_turn().unwrap();
    drop(wal);
    let (wal, groups) = open(&FileDisk::open(&path).unwrap());
    assert_eq!(groups[&1].snapshot, Some(snapshot(90, 2, b"sent")));
    assert_eq!(wal.stats().segments, 1);
}

#[test]
fn a_segment_has_its_full_size_from_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(directory.path()).unwrap();
    let (mut wal, _) = Wal::open(disk, Options::default()).unwrap();
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    let segment = directory.path().join("log-0000000000000001.seg");
    assert_eq!(fs::metadata(segment).unwrap().len(), 16 << 20);
    assert_eq!(wal.stats().bytes, 16 << 20);
}

#[test]
fn damage_in_a_real_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(&FileDisk::open(directory.path()).unwrap());
    append(&mut wal, 1, 1, 1, &[7; 600]);
    wal.sync_turn().unwrap();
    drop(wal);
    let path = directory.path().join("log-0000000000000001.seg");
    let mut bytes = fs::read(&path).unwrap();
    bytes[700] ^= 1;
    fs::write(&path, bytes).unwrap();
    let disk = FileDisk::open(directory.path()).unwrap();
    let error = Wal::open(disk, SMALL).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { offset: 512, .. }));
    assert!(error.to_string().starts_with("log-0000000000000001.seg is damaged at byte 512"));
}

#[test]
fn a_directory_is_used_by_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let first = FileDisk::open(directory.path()).unwrap();
    let (wal, _) = open(&first);
    drop(first);
    let refused = FileDisk::open(directory.path()).unwrap_err();
    assert!(matches!(&refused, DirectoryError::InUse { path } if path == directory.path()));
    drop(wal);
    FileDisk::open(directory.path()).unwrap();
}

#[test]
fn a_snapshot_is_written_on_another_thread() {
    let directory = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(&FileDisk::open(directory.path()).unwrap());
    for index in 1..=3 {
        append(&mut wal, 7, index, 1, b"a");
    }
    wal.sync_turn().unwrap();
    let writer = wal.snapshot_writer();
    let thread = std::thread::spawn(move || writer.write(7, &snapshot(3, 1, b"state")));
    let written = thread.join().unwrap().unwrap();
    assert_eq!((written.group(), written.index()), (7, 3));
    wal.snapshot_written(written).unwrap();
    wal.sync_turn().unwrap();
    drop(wal);
    let (_, groups) = open(&FileDisk::open(directory.path()).unwrap());
    assert_eq!(groups[&7].snapshot, Some(snapshot(3, 1, b"state")));
}

/// Removes a directory at the end of a test, however that ends.
struct Removed<'a>(&'a str);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}

#[test]
fn a_directory_of_the_current_one_needs_no_path() {
    let name = format!("a-log-of-test-{}", std::process::id());
    let _removed = Removed(&name);
    let disk = FileDisk::open(&name).unwrap();
    assert!(disk.path().is_dir());
}

#[test]
fn a_file_where_the_directory_should_be_is_called_no_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, b"").unwrap();
    match FileDisk::open(&path) {
        Err(DirectoryError::Io { source, .. }) => {
            assert_eq!(source.kind(), std::io::ErrorKind::NotADirectory);
        }
        other => panic!("{other:?}"),
    }
}

/// Turns past the page cache and reads through it see the same file; so do writes that no disk takes past it.
#[test]
fn bytes_written_past_the_cache_are_read_through_it() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(directory.path()).unwrap();
    let file = disk.create("segment").unwrap();
    file.write_at(0, &[0; 16 * 512]).unwrap();
    file.sync_data().unwrap();
    let mut expected = vec![0; 16 * 512];
    let turns = disk.open_for_turns("segment").unwrap();
    // Whole blocks; a part of one, which turns never are; whole blocks again.
    for (fill, start, length) in [(1, 512, 1_024), (2, 700, 100), (3, 1_024, 4_096), (4, 512, 512)]
    {
        let mut seen = vec![0; expected.len()];
        disk.open("segment").unwrap().read_at(0, &mut seen).unwrap();
        assert_eq!(seen, expected);
        expected[start..start + length].fill(fill);
        turns.write_at(start as u64, &vec![fill; length]).unwrap();
        turns.sync_data().unwrap();
        turns.read_at(0, &mut seen).unwrap();
        assert_eq!(seen, expected);
    }
    assert_eq!(turns.len().unwrap(), 16 * 512);
}
