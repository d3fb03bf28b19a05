//! Changed log entries and snapshots: they are refused, or decode to a sound state.
//!
//! `FUZZ_CASES=1000000 cargo test -p holdfast-core --test fuzz` runs for longer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]
#![allow(clippy::print_stdout, reason = "a failure says where its input is kept")]

#[allow(dead_code, reason = "the other tests use the rest")]
mod arbitrary;
#[path = "../../../fuzz/support.rs"]
mod support;

use holdfast_core::{Batch, Command, Limits, LockTable, LogIndex, LogicalTime, RulesVersion};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use support::{Target, cases};

/// Of log entries and of snapshots, usually. What older versions wrote is read too.
const VERSION: u8 = 2;

const CASES_USUAL: u32 = 200;

const ENTRIES: Target =
    Target { manifest_dir: env!("CARGO_MANIFEST_DIR"), name: "entries", feed: read_entries };
const SNAPSHOTS: Target =
    Target { manifest_dir: env!("CARGO_MANIFEST_DIR"), name: "snapshots", feed: read_snapshots };

fn read_entries(input: &[Vec<u8>]) {
    let mut table = LockTable::with_rules(Limits::default(), RulesVersion::NEWEST);
    for (index, bytes) in (1..).zip(input) {
        let stamp = Batch::stamp(bytes);
        let Ok(batch) = Batch::decode(bytes) else { continue };
        if bytes[0] == VERSION {
            assert_eq!(batch.encode(), *bytes, "one value, one encoding");
        }
        assert_eq!(stamp, Ok(batch.at));
        for command in batch.commands {
            table.apply(LogIndex(index), batch.at, command, &mut Vec::new());
            assert_eq!(table.check(), Ok(()));
        }
    }
}

/// As they are, and with a digest that fits, as an attacker would make it.
fn read_snapshots(input: &[Vec<u8>]) {
    for bytes in input {
        let body = bytes.get(..bytes.len().saturating_sub(8)).unwrap_or_default();
        for bytes in [bytes.clone(), with_digest(body.to_vec())] {
            let Ok(mut table) = LockTable::decode(&bytes, Limits::default()) else { continue };
            assert_eq!(table.check(), Ok(()));
            if bytes[0] >= VERSION {
                assert_eq!(table.encode(), bytes, "one value, one encoding");
            }
            let end = LogicalTime::from_ms(u64::MAX);
            table.apply(LogIndex(1), end, Command::Tick, &mut Vec::new());
            assert_eq!(table.check(), Ok(()));
        }
    }
}

fn with_digest(mut body: Vec<u8>) -> Vec<u8> {
    let digest = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    body.extend(digest.to_le_bytes());
    body
}

fn batch() -> impl Strategy<Value = Batch> {
    (0_u64..5_000, proptest::collection::vec(arbitrary::command(), 0..12))
        .prop_map(|(ms, commands)| Batch { at: LogicalTime::from_ms(ms), commands })
}

fn snapshot() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(batch(), 0..8).prop_map(|batches| {
        let mut table = LockTable::with_rules(Limits::default(), RulesVersion::NEWEST);
        for (index, batch) in (1..).zip(batches) {
            for command in batch.commands {
                table.apply(LogIndex(index), batch.at, command, &mut Vec::new());
            }
        }
        table.encode()
    })
}

/// The same at every call.
fn samples<T>(of: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..6).map(|_| of.new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn the_corpus_of_entries_is_read() {
    let valid: Vec<_> = samples(batch()).iter().map(|batch| vec![batch.encode()]).collect();
    ENTRIES.replay(&valid);
}

#[test]
fn the_corpus_of_snapshots_is_read() {
    let valid: Vec<_> = samples(snapshot()).into_iter().map(|bytes| vec![bytes]).collect();
    SNAPSHOTS.replay(&valid);
}

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    #[test]
    fn damaged_entries_are_refused_or_sound(
        batches in proptest::collection::vec((batch(), support::damage()), 1..4),
        other in batch(),
    ) {
        let other = other.encode();
        let damaged = batches.iter().map(|(batch, damage)| damage.of(&batch.encode(), &other));
        ENTRIES.feed(&damaged.collect::<Vec<_>>());
    }

    #[test]
    fn damaged_snapshots_are_refused_or_sound(
        bytes in snapshot(),
        other in snapshot(),
        damage in support::damage(),
    ) {
        SNAPSHOTS.feed(&[damage.of(&bytes, &other)]);
    }
}
