//! Bytes that were stored or sent: read back exactly, and never trusted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod arbitrary;

use holdfast_core::{
    Batch, Command, DecodeError, FenceToken, Limits, LockTable, LogIndex, LogicalTime, RulesVersion,
};
use proptest::prelude::*;

/// Of log entries and of snapshots.
const VERSION: u8 = 2;

fn batch() -> impl Strategy<Value = Batch> {
    (any::<u64>(), proptest::collection::vec(arbitrary::command(), 0..20))
        .prop_map(|(ms, commands)| Batch { at: LogicalTime::from_ms(ms), commands })
}

/// A table with some history.
fn table() -> impl Strategy<Value = LockTable> {
    let rules = prop_oneof![
        Just(RulesVersion::ONE),
        Just(RulesVersion::TWO),
        Just(RulesVersion::THREE),
        Just(RulesVersion::NEWEST)
    ];
    let commands = proptest::collection::vec((0_u64..300, arbitrary::command()), 0..60);
    (rules, commands).prop_map(|(rules, commands)| {
        let mut table = LockTable::with_rules(Limits::default(), rules);
        let mut now = 0;
        for (index, (pause_ms, command)) in commands.into_iter().enumerate() {
            now += pause_ms;
            let at = LogicalTime::from_ms(now);
            table.apply(LogIndex(index as u64 + 1), at, command, &mut Vec::new());
        }
        table
    })
}

fn decode(bytes: &[u8]) -> Result<LockTable, DecodeError> {
    LockTable::decode(bytes, Limits::default())
}

/// FNV-1a, as an attacker would compute it.
fn with_digest(mut body: Vec<u8>) -> Vec<u8> {
    let digest = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    body.extend(digest.to_le_bytes());
    body
}

proptest! {
    #[test]
    fn a_batch_is_read_back_as_it_was_written(batch in batch()) {
        let bytes = batch.encode();
        prop_assert_eq!(Batch::stamp(&bytes).unwrap(), batch.at);
        prop_assert_eq!(Batch::decode(&bytes).unwrap(), batch);
    }

    #[test]
    fn a_damaged_batch_is_refused_or_read_but_never_panics(
        batch in batch(),
        place in any::<prop::sample::Index>(),
        change in 1_u8..,
    ) {
        let mut bytes = batch.encode();
        let place = place.index(bytes.len());
        bytes[place] ^= change;
        if let Ok(other) = Batch::decode(&bytes)
            && bytes[0] == VERSION
        {
            // One value, one encoding.
            prop_assert_eq!(other.encode(), bytes);
        }
    }

    #[test]
    fn a_batch_that_is_cut_short_is_refused(batch in batch(), length in any::<prop::sample::Index>()) {
        let bytes = batch.encode();
        prop_assert!(Batch::decode(&bytes[..length.index(bytes.len())]).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Batch::decode(&bytes);
        let _ = Batch::stamp(&bytes);
        let _ = decode(&bytes);
        if let Some(first) = bytes.first_mut() {
            *first = 1;
        }
        let _ = Batch::decode(&bytes);
        let _ = decode(&with_digest(bytes));
    }

    #[test]
    fn any_damage_to_a_snapshot_is_detected(table in table(), change in 1_u8..) {
        let bytes = table.encode();
        prop_assert_eq!(decode(&bytes).unwrap().encode(), bytes.clone());
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= change;
            prop_assert!(decode(&damaged).is_err(), "byte {}", place);
        }
        for length in 0..bytes.len() {
            prop_assert!(decode(&bytes[..length]).is_err(), "{} bytes", length);
        }
    }

    #[test]
    fn a_forged_snapshot_is_refused_or_sound(
        table in table(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut body = table.encode();
        body.truncate(body.len() - 8);
        for (place, value) in changes {
            let place = place.index(body.len());
            body[place] = value;
        }
        let forged = with_digest(body);
        if let Ok(mut table) = decode(&forged) {
            prop_assert_eq!(table.check(), Ok(()));
            if forged[0] >= VERSION {
                prop_assert_eq!(table.encode(), forged);
            }
            table.apply(LogIndex(1), LogicalTime::from_ms(u64::MAX), Command::Tick, &mut Vec::new());
            prop_assert_eq!(table.check(), Ok(()));
        }
    }
}

#[test]
fn an_unknown_version_is_refused_with_an_error() {
    let mut snapshot = LockTable::new(Limits::default()).encode();
    snapshot[0] = 9;
    let refusal = decode(&snapshot).unwrap_err();
    assert_eq!(refusal, DecodeError::UnknownVersion { what: "snapshot", found: 9, known: 4 });
    assert!(refusal.to_string().contains("version 9"), "{refusal}");

    let mut entry = Batch { at: LogicalTime::ZERO, commands: vec![Command::Tick] }.encode();
    entry[0] = 12;
    assert!(matches!(Batch::stamp(&entry), Err(DecodeError::UnknownVersion { found: 12, .. })));
    assert!(matches!(Batch::decode(&entry), Err(DecodeError::UnknownVersion { found: 12, .. })));
}

/// A build must never guess what rules mean that it does not know: such an entry stops the node, with words.
#[test]
fn rules_that_this_build_does_not_know_are_refused_with_an_error() {
    let adopt = Command::AdoptRules { version: RulesVersion::NEWEST };
    let mut entry = Batch { at: LogicalTime::ZERO, commands: vec![adopt.clone()] }.encode();
    assert_eq!(entry, [4, 0, 1, 18, 10]);
    assert!(Batch::decode(&entry).is_ok());
    for unknown in [0, 11, 99] {
        entry[4] = unknown;
        let refusal = Batch::decode(&entry).unwrap_err();
        let found = u64::from(unknown);
        assert_eq!(refusal, DecodeError::UnknownRules { found, known: 10 });
        assert!(refusal.to_string().contains(&format!("rules {found}")), "{refusal}");
    }
    let of_version_3 = [3, 0, 1, 18, 2];
    let refusal = Batch::decode(&of_version_3).unwrap_err();
    assert_eq!(refusal, DecodeError::UnknownTag { what: "command", tag: 18 });

    let mut table = LockTable::new(Limits::default());
    table.apply(LogIndex(5), LogicalTime::ZERO, adopt, &mut Vec::new());
    let mut snapshot = table.encode();
    assert_eq!(snapshot[..2], [4, 10]);
    snapshot.truncate(snapshot.len() - 8);
    snapshot[1] = 11;
    let refusal = decode(&with_digest(snapshot.clone())).unwrap_err();
    assert_eq!(refusal, DecodeError::UnknownRules { found: 11, known: 10 });
    snapshot[1] = 1;
    let refusal = decode(&with_digest(snapshot)).unwrap_err();
    assert!(matches!(refusal, DecodeError::Inconsistent(_)), "{refusal}");
}

/// A table of rules 1 is written as before, so that old followers can read it; adopted rules never go back.
#[test]
fn rules_are_adopted_once_and_only_then_written() {
    let adopt = |version| Command::AdoptRules { version };
    let mut table = LockTable::new(Limits::default());
    assert_eq!((table.rules(), table.encode()[0]), (RulesVersion::ONE, 2));
    let mut apply = |command| {
        table.apply(LogIndex(5), LogicalTime::ZERO, command, &mut Vec::new());
        (table.rules(), table.encode())
    };
    assert_eq!(apply(adopt(RulesVersion::ONE)).1[0], 2);
    let (rules, bytes) = apply(adopt(RulesVersion::TWO));
    assert_eq!((rules, bytes[0]), (RulesVersion::TWO, 4));
    assert_eq!(decode(&bytes).unwrap().rules(), RulesVersion::TWO);
    assert_eq!(apply(adopt(RulesVersion::ONE)).0, RulesVersion::TWO);
    let published = Command::EventsPublished { through: 0, index: LogIndex(5), term: 7 };
    let (_, bytes) = apply(published);
    let read = decode(&bytes).unwrap();
    assert_eq!((read.publication(), read.rules()), (table.publication(), RulesVersion::TWO));
}

/// What only version 3 can say is written as version 3; everything else stays readable to older builds.
#[test]
fn the_format_of_version_3_is_what_it_was() {
    let published = Command::EventsPublished { through: 2, index: LogIndex(300), term: 7 };
    let batch = |commands| Batch { at: LogicalTime::ZERO, commands };
    let entry = batch(vec![Command::Tick, published.clone()]);
    let bytes = [3, 0, 2, 11, 17, 2, 0xac, 2, 7];
    assert_eq!(entry.encode(), bytes);
    assert_eq!(Batch::decode(&bytes), Ok(entry));
    let of_version_2 = [&[2], &bytes[1..]].concat();
    let refusal = Batch::decode(&of_version_2).unwrap_err();
    assert_eq!(refusal, DecodeError::UnknownTag { what: "command", tag: 17 });

    let mut table = LockTable::new(Limits::default());
    table.apply(LogIndex(5), LogicalTime::ZERO, published, &mut Vec::new());
    let bytes = with_digest(vec![3, 0, 5, 0, 0, 0, 0, 0, 0, 5, 7, 0, 0]);
    assert_eq!(table.encode(), bytes);
    assert_eq!(decode(&bytes).unwrap().publication(), table.publication());
}

#[test]
fn the_format_of_version_2_is_what_it_was() {
    // If one of these changes, stored logs and snapshots can not be read any more: raise the version.
    let entry = Batch {
        at: LogicalTime::from_ms(300),
        commands: vec![
            Command::Tick,
            Command::BeginTerm { grace: holdfast_core::Span::from_ms(1) },
        ],
    };
    assert_eq!(entry.encode(), [2, 0xac, 2, 2, 11, 10, 1]);
    let empty = LockTable::new(Limits::default());
    assert_eq!(empty.encode(), with_digest(vec![2, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(empty.digest().to_string().len(), 16);
    assert_eq!(FenceToken::MAX.0, i64::MAX as u64);
}
