//! Crashes at every moment, with every possible loss, on logs small enough to try them all.

use holdfast_wal::SimDisk;

use crate::common::{append, hard_state, indexes, names, open, recovered, snapshot};
use crate::run::{Losses, Run, crashed};

#[test]
fn every_loss_of_the_last_turn_leaves_all_that_was_acknowledged() {
    for blocks in 1..=6 {
        let mut run = Run::new(Losses::Every);
        run.append(1, 1, 1, b"acknowledged");
        run.set_hard_state(2, hard_state(4, 1, 0));
        run.sync_turn();
        run.append(1, 2, 1, &vec![7; blocks * 480 - 80]);
        run.set_hard_state(2, hard_state(5, 2, 0));
        let before = run.crashes;
        run.sync_turn();
        assert!(run.crashes - before >= 1 << blocks);
    }
}

#[test]
fn every_loss_while_a_segment_is_started_leaves_all_that_was_acknowledged() {
    let mut run = Run::new(Losses::Every);
    for index in 1..=5 {
        run.append(1, index, 1, &[index as u8; 1000]);
        run.set_hard_state(3, hard_state(index, 1, 0));
        run.sync_turn();
    }
    assert_eq!(run.wal.stats().segments, 3);
    assert!(run.crashes > 1_000, "{}", run.crashes);
}

#[test]
fn every_loss_while_segments_are_deleted_leaves_all_that_was_acknowledged() {
    let mut run = Run::new(Losses::Every);
    for index in 1..=5 {
        run.append(1, index, 1, &[1; 1000]);
        run.set_hard_state(1, hard_state(1, 1, index));
        run.append(2, index, 1, b"");
        run.set_hard_state(2, hard_state(1, 1, index));
        run.sync_turn();
    }
    run.take_snapshot(1, &snapshot(4, 1, b"first"));
    run.take_snapshot(2, &snapshot(5, 1, b"second"));
    assert_eq!(run.wal.stats().segments, 1);
    run.sync_turn();
    run.take_snapshot(1, &snapshot(5, 1, b"third"));
    run.sync_turn();
}

#[test]
fn every_loss_during_deferred_removal_leaves_all_that_was_acknowledged() {
    let mut run = Run::deferring_removal(Losses::Every);
    let fill = |run: &mut Run, indexes: std::ops::RangeInclusive<u64>| {
        for index in indexes {
            run.append(1, index, 1, &[1; 1000]);
            run.set_hard_state(1, hard_state(1, 1, index));
            run.sync_turn();
        }
    };
    fill(&mut run, 1..=5);
    run.take_snapshot(1, &snapshot(3, 1, b"first"));
    run.take_snapshot(1, &snapshot(5, 1, b"second"));
    // Meanwhile the log goes on, and more of it becomes garbage.
    fill(&mut run, 6..=9);
    let first = run.wal.take_garbage().unwrap();
    run.take_snapshot(1, &snapshot(8, 1, b"third"));
    fill(&mut run, 10..=11);
    first.remove().unwrap();
    run.remove_garbage();
    run.install_snapshot(1, &snapshot(20, 2, b"sent"));
    run.remove_garbage();
    run.append(1, 21, 2, b"behind it");
    run.sync_turn();
    assert_eq!(names(&run.disk, ".snap"), ["snap-1-0000000000000014.snap"]);
    assert_eq!(names(&run.disk, ".seg").len() as u64, run.wal.stats().segments);
}

#[test]
fn every_loss_while_a_snapshot_is_installed_leaves_the_old_log_or_the_snapshot() {
    for installed in [3, 7, 50] {
        let mut run = Run::new(Losses::Every);
        for index in 1..=9 {
            run.append(1, index, 3, &[1; 200]);
        }
        run.set_hard_state(1, hard_state(3, 1, 2));
        run.sync_turn();
        run.append(1, 10, 3, b"open turn");
        run.append(2, 1, 1, b"open turn");
        run.install_snapshot(1, &snapshot(installed, 5, b"sent"));
        run.append(1, installed + 1, 5, b"behind it");
        run.set_hard_state(1, hard_state(5, 0, installed + 1));
        run.sync_turn();
        run.take_snapshot(1, &snapshot(installed + 1, 5, b"own"));
        run.append(1, installed + 2, 5, b"behind that");
        run.sync_turn();
    }
}

/// Recovery writes too; a crash within it must not make things worse.
#[test]
fn every_loss_while_a_torn_turn_is_cut_leaves_the_same_log() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, b"acknowledged");
    wal.sync_turn().unwrap();
    append(&mut wal, 1, 2, 1, &[7; 1800]);
    disk.start_moments();
    wal.sync_turn().unwrap();
    let moments = disk.take_moments();
    let written = moments.last().unwrap();
    assert_eq!(written.unsynced().len(), 4);
    for keep in 0..16 {
        let mut run = Run::new(Losses::Every);
        let torn = crashed(written, keep);
        let found = recovered(&crashed(written, keep));
        let expected: &[u64] = if keep == 15 { &[1, 2] } else { &[1] };
        assert_eq!(indexes(&found[&1]), expected);
        run.reopen(torn, &[found]);
        // The next turn takes the number and the place of the one that was cut.
        run.append(1, 2, 2, &[8; 1700]);
        run.sync_turn();
        run.append(1, 3, 2, &[9; 100]);
        run.sync_turn();
    }
}

#[test]
fn a_torn_first_turn_of_a_segment_gives_its_place_back() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1, 1, &[1; 2000]);
    wal.sync_turn().unwrap();
    append(&mut wal, 1, 2, 1, &[2; 2000]);
    disk.start_moments();
    wal.sync_turn().unwrap();
    let moments = disk.take_moments();
    let torn = crashed(moments.last().unwrap(), 0b11011);
    let mut run = Run::new(Losses::Every);
    let found = recovered(&crashed(moments.last().unwrap(), 0b11011));
    assert_eq!(indexes(&found[&1]), [1]);
    run.reopen(torn, &[found]);
    run.append(1, 2, 2, b"fits where the larger one did not");
    run.sync_turn();
    assert_eq!(run.wal.stats().segments, 1);
    run.append(1, 3, 2, &[3; 2000]);
    run.sync_turn();
    assert_eq!(run.wal.stats().segments, 2);
}
