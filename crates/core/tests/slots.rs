//! The slots of names, as `tests/vectors/slots.txt` has them for all languages.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

use std::fs;
use std::path::Path;

use holdfast_core::Slot;

/// `UPDATE_GOLDEN=1` writes the slots of the names. They may be added to; what is there can never change.
#[test]
fn every_name_has_the_slot_of_the_vectors() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/slots.txt");
    let vectors = fs::read_to_string(&file).unwrap();
    let computed: String = vectors
        .lines()
        .map(|line| match line.split_once('\t') {
            Some((_, name)) => format!("{}\t{name}\n", Slot::of(name)),
            None => format!("{line}\n"),
        })
        .collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(file, computed).unwrap();
        return;
    }
    assert_eq!(vectors, computed);
    assert!(vectors.lines().filter(|line| line.contains('\t')).count() >= 20);
}

#[test]
fn names_with_one_tag_share_a_slot_and_the_slots_of_others_are_spread() {
    let tagged = ["{42}", "orders/{42}", "{42}/lines", "{}{42}", "{42}{43}"];
    assert!(tagged.iter().all(|name| Slot::of(name) == Slot::of("42")));
    let mut names_of = vec![0; 16];
    for number in 0..16_000 {
        let slot = Slot::of(&format!("orders/{number}"));
        names_of[usize::from(slot.number()) * 16 / 4_096] += 1;
    }
    assert!(names_of.iter().all(|names| (800..1_200).contains(names)), "{names_of:?}");
}
