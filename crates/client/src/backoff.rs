//! How long to wait before the next try: doubling, with jitter, so that the clients of a failed
//! leader do not all come back at the same moment.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Backoff {
    ceiling: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { ceiling: FIRST }
    }

    pub(crate) fn reset(&mut self) {
        *self = Backoff::new();
    }

    /// Between half of the current ceiling and all of it.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = self.ceiling / 2 + (self.ceiling / 2).mul_f64(random_fraction());
        self.ceiling = (self.ceiling * 2).min(LONGEST);
        delay
    }
}

pub(crate) fn random_fraction() -> f64 {
    // Jitter needs no secrecy: a system that has no randomness to give gets the middle.
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_ceiling_and_start_anew_after_success() {
        let mut backoff = Backoff::new();
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
