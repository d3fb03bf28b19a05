//! Damage in anything that was synced is refused, and named.

use holdfast_wal::{Disk, DiskFile, OpenError, SimDisk, Wal};

use crate::common::{SMALL, append, hard_state, names, open, recovered, snapshot, take_snapshot};

const BLOCK: u64 = 512;

/// Two groups, turns of one to three blocks, two segments.
fn small_log() -> SimDisk {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    for (index, bytes) in (1..=5).zip([10, 1000, 400, 700, 900]) {
        append(&mut wal, 1, index, 1, &vec![0xA5; bytes]);
        append(&mut wal, 2, index, 1, b"");
        wal.set_hard_state(1, hard_state(1, 2, index));
        wal.sync_turn().unwrap();
    }
    assert_eq!(names(&disk, ".seg").len(), 2);
    disk
}

fn refusal(disk: &SimDisk) -> OpenError {
    Wal::open(disk.clone(), SMALL).map(|_| ()).expect_err("the log is refused")
}

fn segment(sequence: u64) -> String {
    format!("log-{sequence:016x}.seg")
}

fn overwrite(disk: &SimDisk, name: &str, offset: u64, bytes: &[u8]) {
    let file = disk.open(name).unwrap();
    file.write_at(offset, bytes).unwrap();
    file.sync_data().unwrap();
}

fn assert_damaged_at(error: OpenError, expected_file: &str, expected_offset: u64) {
    match error {
        OpenError::Damaged { file, offset, .. } => {
            assert_eq!((file.as_str(), offset), (expected_file, expected_offset));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn every_flipped_bit_of_every_segment_is_refused_with_file_and_offset() {
    let disk = small_log();
    let mut flips = 0;
    for name in names(&disk, ".seg") {
        let bits = disk.content(&name).unwrap().len() as u64 * 8;
        for bit in 0..bits {
            assert!(disk.flip_bit(&name, bit));
            assert_damaged_at(refusal(&disk), &name, bit / 8 / BLOCK * BLOCK);
            assert!(disk.flip_bit(&name, bit));
            flips += 1;
        }
    }
    assert_eq!(flips, 2 * 4096 * 8);
    assert_eq!(recovered(&disk)[&1].entries.len(), 5);
}

#[test]
fn every_flipped_bit_of_a_snapshot_is_refused_with_its_file() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    take_snapshot(&mut wal, 1, 1, 1);
    let name = names(&disk, ".snap").remove(0);
    for bit in 0..disk.content(&name).unwrap().len() as u64 * 8 {
        disk.flip_bit(&name, bit);
        assert_damaged_at(refusal(&disk), &name, 0);
        disk.flip_bit(&name, bit);
    }
    recovered(&disk);
}

#[test]
fn every_block_that_turned_to_zeros_before_the_last_turn_is_refused() {
    let whole = small_log();
    for (sequence, blocks) in [(1, 7), (2, 0)] {
        for block in 0..blocks {
            let disk = whole.crashed(|_| true);
            overwrite(&disk, &segment(sequence), block * BLOCK, &[0; 512]);
            assert_damaged_at(refusal(&disk), &segment(sequence), block * BLOCK);
        }
    }
}

#[test]
fn a_block_that_was_copied_elsewhere_is_refused() {
    let whole = small_log();
    let content = whole.content(&segment(1)).unwrap();
    for to in 1..8 {
        let disk = whole.crashed(|_| true);
        overwrite(&disk, &segment(1), to * BLOCK, &content[..512]);
        assert_damaged_at(refusal(&disk), &segment(1), to * BLOCK);
    }
    let disk = whole.crashed(|_| true);
    overwrite(&disk, &segment(2), 0, &content[..512]);
    assert_damaged_at(refusal(&disk), &segment(2), 0);
}

#[test]
fn a_segment_that_turned_to_zeros_before_the_last_is_refused() {
    let disk = small_log();
    overwrite(&disk, &segment(1), 0, &[0; 4096]);
    assert_damaged_at(refusal(&disk), &segment(1), 0);
}

#[test]
fn a_segment_missing_between_others_is_named() {
    let disk = small_log();
    let (mut wal, _) = open(&disk);
    for index in 6..=8 {
        append(&mut wal, 1, index, 1, &[1; 1500]);
        wal.sync_turn().unwrap();
    }
    disk.remove(&segment(2)).unwrap();
    let OpenError::Missing { file, .. } = refusal(&disk) else { panic!("not missing") };
    assert_eq!(file, segment(2));
}

#[test]
fn a_log_whose_beginning_is_missing_is_refused() {
    let disk = small_log();
    disk.remove(&segment(1)).unwrap();
    let OpenError::Inconsistent { group, reason } = refusal(&disk) else { panic!("consistent") };
    assert_eq!((group, reason.as_str()), (1, "entry 1 is needed, but the log begins at 5"));
}

/// Replaces a byte of a segment, and makes the checksum of its block right again: what a program of
/// another version might have written.
fn rewrite(disk: &SimDisk, name: &str, offset: u64, byte: u8) {
    overwrite(disk, name, offset, &[byte]);
    let number = offset / BLOCK;
    let content = disk.content(name).unwrap();
    let block = &content[(number * BLOCK) as usize..][..BLOCK as usize];
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&block[4..]), &number.to_le_bytes());
    overwrite(disk, name, number * BLOCK, &checksum.to_le_bytes());
}

#[test]
fn a_record_that_is_not_understood_is_named_by_its_byte() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, &[0xA5; 1100]);
    append(&mut wal, 1, 2, 1, b"the one");
    wal.sync_turn().unwrap();
    let content = disk.content(&segment(1)).unwrap();
    let data = content.windows(7).position(|bytes| bytes == b"the one").unwrap() as u64;
    // An entry is a header of 10 bytes, index, term and kind, and its data; all in the third block.
    let record = data - 17 - 10;
    assert_eq!((record / BLOCK, data / BLOCK), (2, 2));
    for (offset, what, found) in [(record, "record version", 9), (record + 1, "record kind", 77)] {
        let disk = disk.crashed(|_| true);
        rewrite(&disk, &segment(1), offset, found as u8);
        match refusal(&disk) {
            OpenError::UnknownFormat { file, offset, what: named, found: shown } => {
                assert_eq!((file, offset), (segment(1), record));
                assert_eq!((named, shown), (what, found));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_segment_of_a_wrong_length_is_refused() {
    let disk = small_log();
    overwrite(&disk, &segment(2), 4096, &[0; 100]);
    assert_damaged_at(refusal(&disk), &segment(2), 32);
}

#[test]
fn a_snapshot_that_the_log_relies_on_may_not_be_missing() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    take_snapshot(&mut wal, 1, 1, 1);
    wal.sync_turn().unwrap();
    let name = names(&disk, ".snap").remove(0);
    disk.remove(&name).unwrap();
    let OpenError::Missing { file, .. } = refusal(&disk) else { panic!("not missing") };
    assert_eq!(file, name);
}

#[test]
fn a_snapshot_is_still_missed_when_the_segment_that_announced_it_is_gone() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    take_snapshot(&mut wal, 1, 1, 1);
    wal.sync_turn().unwrap();
    append(&mut wal, 2, 1, 1, &[2; 3500]);
    wal.sync_turn().unwrap();
    assert_eq!(names(&disk, ".seg"), [segment(2)]);
    disk.remove(&names(&disk, ".snap").remove(0)).unwrap();
    assert!(matches!(refusal(&disk), OpenError::Missing { .. }));
}

#[test]
fn a_segment_under_the_name_of_another_is_refused() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"a");
    wal.sync_turn().unwrap();
    disk.rename(&segment(1), &segment(2)).unwrap();
    assert_damaged_at(refusal(&disk), &segment(2), 0);
}

#[test]
fn a_snapshot_under_the_name_of_another_is_refused() {
    let disk = SimDisk::new();
    let (wal, _) = open(&disk);
    let _written = wal.snapshot_writer().write(1, &snapshot(4, 1, b"state")).unwrap();
    let other = "snap-2-0000000000000004.snap";
    disk.rename("snap-1-0000000000000004.snap", other).unwrap();
    assert_damaged_at(refusal(&disk), other, 0);
}

#[test]
fn a_refused_open_changes_nothing_on_the_disk() {
    let disk = small_log();
    disk.create("3.tmp").unwrap();
    disk.flip_bit(&segment(2), 77);
    disk.start_trace();
    refusal(&disk);
    assert!(disk.take_trace().is_empty());
}

#[test]
fn whatever_a_file_contains_opening_never_panics() {
    for name in [segment(1), segment(u64::MAX), "snap-1-0000000000000004.snap".to_owned()] {
        for length in [0, 1, 11, 12, 52, 511, 512, 513, 4096] {
            for fill in [0, 1, 0xFF] {
                let disk = SimDisk::new();
                disk.create(&name).unwrap();
                overwrite(&disk, &name, 0, &vec![fill; length]);
                let _ = Wal::open(disk, SMALL);
            }
        }
    }
}
