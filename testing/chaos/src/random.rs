//! Random numbers from a seed, so that a schedule can be had again.

use std::ops::Range;

/// SplitMix64: small, fast, and good enough to choose faults with.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// A source of its own for one part of the run: what it draws does not depend on the others.
    pub(crate) fn fork(&self, part: u64) -> Random {
        let mut source = Random::new(self.state ^ part.wrapping_mul(0xa076_1d64_78bd_642f));
        Random::new(source.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The range's start if the range is empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        let width = range.end.saturating_sub(range.start).max(1);
        range.start + self.next() % width
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.within(0..n) == 0
    }

    /// One of the choices, each as often as its weight says; the first if there is no weight at all.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> Option<T> {
        let total = choices.iter().map(|(weight, _)| weight).sum();
        let mut at = self.within(0..total);
        for (weight, choice) in choices {
            if at < *weight {
                return Some(*choice);
            }
            at -= weight;
        }
        choices.first().map(|(_, choice)| *choice)
    }

    /// Some of the numbers 1 to `count`, in random order.
    pub(crate) fn some_of(&mut self, count: u64, wanted: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (1..=count).collect();
        let mut chosen = Vec::new();
        while (chosen.len() as u64) < wanted && !all.is_empty() {
            let at = self.within(0..all.len() as u64) as usize;
            chosen.push(all.swap_remove(at));
        }
        chosen
    }
}
