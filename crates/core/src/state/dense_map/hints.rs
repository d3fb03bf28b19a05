//! Where keys were found that are asked for again and again, as most are: locks that are taken, given back, and taken
//! again. To look for one from the root means to compare it with ten others, and with twenty in a table of half a million.
//!
//! A hint can be wrong, and is checked against what stands there. It need not be kept up to date.

use alloc::boxed::Box;
use core::cell::Cell;
use core::hash::{Hash, Hasher};

use super::Home;

const SLOTS: usize = 1_024;

#[derive(Clone, Debug)]
pub(super) struct Hints {
    slots: Box<[Cell<Hint>; SLOTS]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Hint {
    /// What else is known of the key: others have the same slot, and to look for it among them costs more.
    mark: u32,
    home: Home,
}

/// One slot, for one key.
pub(super) struct Slot<'a> {
    cell: &'a Cell<Hint>,
    mark: u32,
}

impl Hints {
    pub(super) fn new() -> Hints {
        Hints { slots: Box::new([const { Cell::new(Hint { mark: 0, home: None }) }; SLOTS]) }
    }

    pub(super) fn slot<Q: Hash + ?Sized>(&self, key: &Q) -> Slot<'_> {
        let mut hasher = Mixed(0);
        key.hash(&mut hasher);
        let hash = hasher.finish();
        Slot { cell: &self.slots[hash as usize % SLOTS], mark: (hash >> 32) as u32 }
    }
}

impl Slot<'_> {
    /// Where the key may be.
    pub(super) fn get(&self) -> Option<Home> {
        let hint = self.cell.get();
        (hint.mark == self.mark).then_some(hint.home)
    }

    pub(super) fn set(&self, home: Home) {
        self.cell.set(Hint { mark: self.mark, home });
    }
}

/// A quick hash. Nothing depends on it but speed.
struct Mixed(u64);

impl Mixed {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        let last = match bytes.last_chunk() {
            // What was mixed in already is no harm.
            Some(word) => u64::from_le_bytes(*word),
            None => rest.iter().fold(0, |last, byte| last << 8 | u64::from(*byte)),
        };
        self.mix(last ^ bytes.len() as u64);
    }

    /// Behind a text, which has told its length.
    fn write_u8(&mut self, byte: u8) {
        self.0 ^= u64::from(byte);
    }

    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
