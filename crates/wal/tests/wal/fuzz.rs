//! Files that were changed, cut, lengthened, mixed up and made up: the log opens with something sound, or
//! says what is wrong. It never panics, and never asks for memory that no disk could fill.
//!
//! `FUZZ_CASES=100000 cargo test -p holdfast-wal --test wal fuzz` runs for longer.

use holdfast_wal::{Disk, DiskFile, GroupLog, SimDisk, Wal};
use proptest::prelude::*;

use crate::common::{SMALL, append, hard_state, names, open, take_snapshot};
use crate::support::{self, Target, cases};

const CASES_USUAL: u32 = 300;

/// An input is a row of names and contents, in turn.
const FILES: Target =
    Target { manifest_dir: env!("CARGO_MANIFEST_DIR"), name: "files", feed: open_files };

fn open_files(input: &[Vec<u8>]) {
    let disk = SimDisk::new();
    for file in input.chunks_exact(2) {
        let Ok(created) = disk.create(&String::from_utf8_lossy(&file[0])) else { continue };
        created.write_at(0, &file[1]).unwrap();
        created.sync_data().unwrap();
    }
    disk.sync_dir().unwrap();
    let Ok((mut wal, groups)) = Wal::open(disk.clone(), SMALL) else { return };
    groups.iter().for_each(check);
    // What opens also goes on, and opens again as it was.
    for log in &groups {
        let last = log.entries.last().map(|entry| (entry.index, entry.term));
        let last = last.or(log.snapshot.as_ref().map(|snapshot| (snapshot.index, snapshot.term)));
        let (index, term) = last.unwrap_or((0, 1));
        if let Some(next) = index.checked_add(1) {
            append(&mut wal, log.group, next, term, b"one more");
        }
    }
    wal.sync_turn().unwrap();
    let (_, again) = Wal::open(disk, SMALL).unwrap();
    again.iter().for_each(check);
    assert!(again.len() >= groups.len());
}

fn check(log: &GroupLog) {
    let first = log.snapshot.as_ref().map_or(0, |snapshot| snapshot.index);
    for (index, entry) in (first + 1..).zip(&log.entries) {
        assert_eq!(entry.index, index, "a gap in group {}", log.group);
    }
    assert!(log.snapshot.as_ref().is_none_or(|snapshot| log.hard_state.commit >= snapshot.index));
}

/// Two groups, some turns in several segments, a snapshot; as names and contents.
fn valid_files(turns: u64) -> Vec<Vec<u8>> {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    for index in 1..=turns {
        append(&mut wal, 1, index, 1 + index / 5, &vec![0xA5; (index as usize * 97) % 900]);
        append(&mut wal, 2, index, 1, b"");
        wal.set_hard_state(1, hard_state(1 + index / 5, 2, index - 1));
        wal.sync_turn().unwrap();
        if index == 4 {
            take_snapshot(&mut wal, 1, 3, 1);
        }
    }
    let mut files = Vec::new();
    for name in names(&disk, "") {
        let content = disk.content(&name).unwrap();
        files.extend([name.into_bytes(), content]);
    }
    files
}

#[test]
fn the_fuzz_corpus_opens_or_is_refused() {
    FILES.replay(&[valid_files(1), valid_files(3), valid_files(7)]);
}

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    #[test]
    fn damaged_files_open_consistently_or_are_refused(
        turns in 1_u64..12,
        damages in proptest::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), support::damage()),
            1..3,
        ),
    ) {
        let mut files = valid_files(turns);
        for (which, other, damage) in damages {
            // Mostly contents; now and then a name.
            let (which, other) = (which.index(files.len()), other.index(files.len()));
            files[which] = damage.of(&files[which], &files[other]);
        }
        FILES.feed(&files);
    }
}
