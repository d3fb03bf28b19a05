//! Slots: every lock name belongs to one of 4,096, and a Raft group owns some of them.
//!
//! The slot of a name is the CRC32C (Castagnoli) of a part of the name, modulo [`SLOTS`]. The part is the name's
//! *tag*: the bytes between the first `{` and the next `}` after it. If there are none between them, the search goes on
//! behind that `}`. If there is no `{` any more, or no `}` behind it, the name has no tag, and the part is the whole
//! name. Names with the same tag have the same slot, so one acquire-all can take them.
//!
//! | name | tag |
//! |---|---|
//! | `orders/42` | none |
//! | `{orders}/42`, `lines/{orders}` | `orders` |
//! | `{}{orders}` | `orders`: an empty tag is passed over |
//! | `{a}{b}` | `a`: the first one counts |
//! | `{{a}}` | `{a` |
//! | `}{a`, `a{`, `{}` | none |
//!
//! The rule is part of the stored and the sent formats: clients compute the same slots. It can never change.
//! `crates/core/tests/vectors/slots.txt` has examples for other languages.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::model::codec::{DecodeError, Reader, Sink};

/// How many slots there are.
pub const SLOTS: u16 = 4_096;

const WORDS: usize = SLOTS as usize / 64;

/// A slot; below [`SLOTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

/// The version of the map from slots to groups. A later map has a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapEpoch(pub u64);

/// Some of the slots, or all of them. Equal sets are equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotSet {
    /// A bit for each slot. None if all are in the set, so that a table that owns all of them has one thing to compare.
    bits: Option<Box<[u64; WORDS]>>,
}

impl Slot {
    /// None from [`SLOTS`] on.
    pub fn new(number: u16) -> Option<Slot> {
        (number < SLOTS).then_some(Slot(number))
    }

    /// The slot of a lock name.
    pub fn of(name: &str) -> Slot {
        let part = tag_of(name).unwrap_or(name);
        Slot((crc32c(part.as_bytes()) % u32::from(SLOTS)) as u16)
    }

    pub fn number(self) -> u16 {
        self.0
    }
}

/// The text between the first braces that have some.
fn tag_of(name: &str) -> Option<&str> {
    let mut rest = name;
    loop {
        let (_, opened) = rest.split_once('{')?;
        let (tag, behind) = opened.split_once('}')?;
        if !tag.is_empty() {
            return Some(tag);
        }
        rest = behind;
    }
}

impl SlotSet {
    pub const ALL: SlotSet = SlotSet { bits: None };

    pub fn empty() -> SlotSet {
        SlotSet { bits: Some(Box::new([0; WORDS])) }
    }

    pub fn is_all(&self) -> bool {
        self.bits.is_none()
    }

    pub fn contains(&self, slot: Slot) -> bool {
        match &self.bits {
            None => true,
            Some(bits) => bits[place(slot).0] & place(slot).1 != 0,
        }
    }

    pub fn len(&self) -> usize {
        match &self.bits {
            None => usize::from(SLOTS),
            Some(bits) => bits.iter().map(|word| word.count_ones() as usize).sum(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = Slot> {
        (0..SLOTS).map(Slot).filter(|slot| self.contains(*slot))
    }

    pub fn remove(&mut self, slot: Slot) {
        let (word, bit) = place(slot);
        self.bits.get_or_insert_with(|| Box::new([u64::MAX; WORDS]))[word] &= !bit;
    }

    /// Whether all slots of the other are in this set.
    pub fn includes(&self, other: &SlotSet) -> bool {
        match (&self.bits, &other.bits) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(bits), Some(others)) => {
                bits.iter().zip(others.iter()).all(|(word, other)| other & !word == 0)
            }
        }
    }

    /// Whether a slot is in both sets.
    pub fn overlaps(&self, other: &SlotSet) -> bool {
        match (&self.bits, &other.bits) {
            (None, _) => !other.is_empty(),
            (_, None) => !self.is_empty(),
            (Some(bits), Some(others)) => {
                bits.iter().zip(others.iter()).any(|(word, other)| word & other != 0)
            }
        }
    }

    /// The slots that are not in the other set.
    #[must_use]
    pub fn without(&self, other: &SlotSet) -> SlotSet {
        self.iter().filter(|slot| !other.contains(*slot)).collect()
    }

    /// Runs of slots that follow each other, as the first and the number of them. No two runs touch, so a set has one form.
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        match self.is_all() {
            true => runs.push((0, SLOTS)),
            false => {
                for Slot(number) in self.iter() {
                    match runs.last_mut() {
                        Some((first, count)) if *first + *count == number => *count += 1,
                        _ => runs.push((number, 1)),
                    }
                }
            }
        }
        sink.count(runs.len());
        for (first, count) in runs {
            sink.varint(u64::from(first));
            sink.varint(u64::from(count));
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<SlotSet, DecodeError> {
        let wrong = || DecodeError::Inconsistent(String::from("the slots are not in order"));
        let mut set = SlotSet::empty();
        let mut free_from = 0;
        for _ in 0..reader.count()? {
            let (first, count) = (reader.varint()?, reader.varint()?);
            let end = first.checked_add(count).filter(|end| *end <= u64::from(SLOTS));
            let end = end.ok_or_else(wrong)?;
            if first < free_from || count == 0 {
                return Err(wrong());
            }
            set.extend((first..end).map(|number| Slot(number as u16)));
            free_from = end + 1;
        }
        Ok(set)
    }
}

impl Extend<Slot> for SlotSet {
    fn extend<I: IntoIterator<Item = Slot>>(&mut self, slots: I) {
        let Some(bits) = &mut self.bits else { return };
        for slot in slots {
            let (word, bit) = place(slot);
            bits[word] |= bit;
        }
        if bits.iter().all(|word| *word == u64::MAX) {
            self.bits = None;
        }
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> SlotSet {
        let mut set = SlotSet::empty();
        set.extend(slots);
        set
    }
}

fn place(slot: Slot) -> (usize, u64) {
    (usize::from(slot.0 / 64), 1 << (slot.0 % 64))
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for MapEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Reflected, as CRC32C is defined.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What each byte does to the remainder.
const REMAINDERS: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let carry = remainder & 1;
            remainder = (remainder >> 1) ^ (carry * POLYNOMIAL);
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
};

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |remainder: u32, byte: &u8| {
        (remainder >> 8) ^ REMAINDERS[usize::from(remainder as u8 ^ byte)]
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc32c() {
        // RFC 3720, B.4, and the check value of the algorithm.
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn a_tag_is_the_text_of_the_first_braces_that_have_some() {
        let cases = [
            ("orders/42", None),
            ("{orders}/42", Some("orders")),
            ("lines/{orders}", Some("orders")),
            ("{}{orders}", Some("orders")),
            ("{a}{b}", Some("a")),
            ("{{a}}", Some("{a")),
            ("}{a", None),
            ("a{", None),
            ("{}", None),
            ("{}{", None),
        ];
        for (name, tag) in cases {
            assert_eq!(tag_of(name), tag, "{name}");
        }
    }

    #[test]
    fn a_set_is_read_back_and_has_one_encoding() {
        let slots = |numbers: &[u16]| -> SlotSet {
            numbers.iter().filter_map(|number| Slot::new(*number)).collect()
        };
        let mut nearly_all = SlotSet::ALL;
        nearly_all.remove(Slot(4_095));
        let sets = [
            (SlotSet::ALL, 1 + 1 + 2),
            (SlotSet::empty(), 1),
            (slots(&[0]), 3),
            (slots(&[4_095]), 4),
            (slots(&[1, 2, 3, 700]), 1 + 2 + 3),
            (nearly_all, 4),
        ];
        for (set, length) in sets {
            let mut bytes = Vec::new();
            set.write(&mut bytes);
            assert_eq!(bytes.len(), length, "{set:?}");
            assert_eq!(SlotSet::read(&mut Reader::new(&bytes)), Ok(set));
        }
    }

    #[test]
    fn runs_that_touch_overlap_or_end_too_late_are_refused() {
        let read = |numbers: &[u64]| {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|number| bytes.varint(*number));
            SlotSet::read(&mut Reader::new(&bytes))
        };
        assert!(read(&[2, 0, 2, 3, 1]).is_ok());
        assert!(read(&[2, 0, 2, 2, 1]).is_err(), "they touch");
        assert!(read(&[2, 5, 1, 3, 1]).is_err(), "they are not in order");
        assert!(read(&[1, 7, 0]).is_err(), "an empty run");
        assert!(read(&[1, 4_095, 2]).is_err());
        assert!(read(&[1, u64::MAX, 2]).is_err());
    }

    #[test]
    fn a_set_that_has_become_all_slots_is_equal_to_all_of_them() {
        let mut set = SlotSet::ALL;
        set.remove(Slot(7));
        assert_eq!((set.len(), set.contains(Slot(7)), set.contains(Slot(8))), (4_095, false, true));
        assert!(SlotSet::ALL.includes(&set) && !set.includes(&SlotSet::ALL));
        set.extend([Slot(7)]);
        assert!(set.is_all() && set == SlotSet::ALL);
        assert!(SlotSet::empty().is_empty() && set.includes(&SlotSet::empty()));
    }
}
