//! How long to wait before the next try: doubling, with jitter, so that the clients of a failed
//! leader do not all come back at the same moment.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Backoff {
    ceiling: Duration,
    /// The state of the random numbers. Jitter needs no secrecy.
    seed: u64,
}

impl Backoff {
    /// Clients with different seeds have different jitter.
    pub fn new(seed: u64) -> Backoff {
        Backoff { ceiling: FIRST, seed }
    }

    pub fn reset(&mut self) {
        self.ceiling = FIRST;
    }

    /// Between half of the current ceiling and all of it.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.ceiling / 2 + (self.ceiling / 2).mul_f64(self.random_fraction());
        self.ceiling = (self.ceiling * 2).min(LONGEST);
        delay
    }

    /// SplitMix64, and of that the upper 32 bits.
    fn random_fraction(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 32) as f64 / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_ceiling_and_start_short_after_success() {
        let mut backoff = Backoff::new(7);
        let mut ceiling = FIRST;
        for _ in 0..10 {
            let delay = backoff.next_delay();
            assert!(delay >= ceiling / 2 && delay <= ceiling, "{delay:?} of {ceiling:?}");
            ceiling = (ceiling * 2).min(LONGEST);
        }
        backoff.reset();
        assert!(backoff.next_delay() <= FIRST);
    }
}
