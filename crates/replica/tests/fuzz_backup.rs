//! Backup files that were damaged, or made up: refused with words, or read as what was written. Never a panic.
//!
//! `FUZZ_CASES=100000 cargo test -p holdfast-replica --test fuzz_backup` runs for longer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]
#![allow(clippy::print_stdout, reason = "a failure says where its input is kept")]

#[path = "../../../fuzz/support.rs"]
mod support;

use holdfast_core::{LogicalTime, MapEpoch, SLOTS, Slot, SlotSet, Span};
use holdfast_replica::{
    BackupHeader, BodyCheck, ClusterId, GroupId, GroupRestoreOptions, GroupShare, Member, NodeId,
    SnapshotFile, found_group, read_parts, read_snapshot, restore_group, snapshot_versions,
};
use proptest::prelude::*;
use support::{Target, cases};

const CASES_USUAL: u32 = 2_000;
/// Written by the first build, before memberships were in snapshots.
const SNAPSHOT: &[u8] = include_bytes!("fixtures/snapshot-v1.bin");

const FILES: Target =
    Target { manifest_dir: env!("CARGO_MANIFEST_DIR"), name: "backups", feed: read_files };
/// The body alone: its checksum keeps damage away from what is read after it.
const BODIES: Target =
    Target { manifest_dir: env!("CARGO_MANIFEST_DIR"), name: "backup-bodies", feed: read_bodies };

fn read_files(input: &[Vec<u8>]) {
    for bytes in input {
        if let Ok(parts) = read_parts(bytes) {
            let spelled =
                parts.iter().flat_map(|part| [&part.header.encode()[..], part.body].concat());
            assert_eq!(spelled.collect::<Vec<u8>>(), *bytes, "it has one spelling");
            for part in parts {
                read_bodies(&[part.body.to_vec()]);
            }
        }
    }
}

fn read_bodies(input: &[Vec<u8>]) {
    for bytes in input {
        let Ok((membership, table)) = read_snapshot(bytes) else { continue };
        snapshot_versions(bytes).unwrap();
        let file = SnapshotFile { index: 9, term: 1, data: bytes.clone().into() };
        let node = NodeId(membership.highest.0.max(1));
        let Ok((made, account)) = restore_group(&file, terms(node)) else { continue };
        let (_, restored) = read_snapshot(&made.data).expect("what is made of it can be read");
        assert!(restored.last_token() >= table.last_token() && restored.session_count() == 0);
        assert_eq!(account.ended.sessions, table.session_count());
    }
}

fn terms(node: NodeId) -> GroupRestoreOptions {
    GroupRestoreOptions {
        node,
        member: Member::default(),
        cluster: ClusterId([1; 16]),
        clock_unix_ms: 1_790_000_000_000,
        written_unix_ms: None,
        token_floor: None,
        closed_for: Some(Span::from_secs(1)),
        by: "test".into(),
        reason: "test".into(),
    }
}

fn file(body: &[u8]) -> Vec<u8> {
    part(GroupId(1), None, body)
}

/// Of three groups, each with its own part of the slots.
fn file_of_groups() -> Vec<u8> {
    let parts = (1..=3).flat_map(|group| {
        let owned = (0..SLOTS).filter(|slot| u32::from(*slot) * 3 / u32::from(SLOTS) + 1 == group);
        let slots: SlotSet = owned.filter_map(Slot::new).collect();
        let body = found_group(&[1, 2, 3].map(NodeId), MapEpoch(1), slots.clone()).data;
        let share = GroupShare { groups: 3, epoch: MapEpoch(1), slots };
        part(GroupId(group), Some(share), &body)
    });
    parts.collect()
}

fn part(group: GroupId, share: Option<GroupShare>, body: &[u8]) -> Vec<u8> {
    let mut check = BodyCheck::default();
    check.take(body);
    let header = BackupHeader {
        cluster: "prod".into(),
        cluster_id: None,
        group,
        index: 40,
        term: 3,
        logical_time: LogicalTime::from_ms(7),
        created_unix_ms: 1_790_000_000_000,
        made_by: "0.1.0".into(),
        body_bytes: check.bytes(),
        body_crc32c: check.crc32c(),
        share,
    };
    [&header.encode()[..], body].concat()
}

/// A snapshot with all of the membership in it.
fn newer_snapshot() -> Vec<u8> {
    let data = SNAPSHOT.to_vec().into();
    let old = SnapshotFile { index: 40, term: 3, data };
    restore_group(&old, terms(NodeId(1))).unwrap().0.data.to_vec()
}

#[test]
fn the_corpus_of_backup_files_is_read() {
    let of_one_group = [file(SNAPSHOT), file(&newer_snapshot()), file(b"")];
    let files = of_one_group.into_iter().chain([file_of_groups()]);
    FILES.replay(&files.map(|file| vec![file]).collect::<Vec<_>>());
}

#[test]
fn the_corpus_of_backup_bodies_is_read() {
    BODIES.replay(&[vec![SNAPSHOT.to_vec()], vec![newer_snapshot()]]);
}

#[test]
fn the_backup_of_one_group_has_the_bytes_that_the_first_builds_wrote() {
    let written = include_bytes!("corpus/backups/valid-0");
    assert_eq!(file(SNAPSHOT), written[4..], "behind its length");
}

#[test]
fn every_changed_byte_of_a_backup_file_is_detected() {
    for good in [file(SNAPSHOT), file_of_groups()] {
        assert!(read_parts(&good).is_ok());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(read_parts(&bad).is_err(), "byte {at}");
        }
    }
}

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    #[test]
    fn damaged_files_are_refused_and_never_panic(damage in support::damage()) {
        FILES.feed(&[damage.of(&file(SNAPSHOT), &file(&newer_snapshot()))]);
    }

    #[test]
    fn damaged_files_of_several_groups_are_refused_and_never_panic(damage in support::damage()) {
        FILES.feed(&[damage.of(&file_of_groups(), &file(SNAPSHOT))]);
    }

    #[test]
    fn damaged_bodies_never_panic(damage in support::damage(), newer: bool) {
        let (body, other) = (SNAPSHOT.to_vec(), newer_snapshot());
        let (body, other) = if newer { (other, body) } else { (body, other) };
        BODIES.feed(&[damage.of(&body, &other)]);
    }
}
