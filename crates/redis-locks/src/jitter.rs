//! Chance, so that what began together does not go on together: locks of one moment do not all end, and are
//! not all extended, at the same moment.

use std::time::Duration;

const TTL_JITTER: f64 = 0.05;
const RENEWAL_JITTER: f64 = 0.1;

/// A TTL as it is sent: what was asked for or a little more. Less would end a lock before its holder expects it.
pub(super) fn prolonged(ttl: Duration) -> Duration {
    ttl.mul_f64(1.0 + TTL_JITTER * random_fraction())
}

/// The longest that [`prolonged`] may give.
pub(super) fn longest(ttl: Duration) -> Duration {
    ttl.mul_f64(1.0 + TTL_JITTER)
}

/// An interval of renewal: what was asked for or a little less.
pub(super) fn shortened(interval: Duration) -> Duration {
    interval.mul_f64(1.0 - RENEWAL_JITTER * random_fraction())
}

/// For a series of pauses.
pub(super) fn jitter_seed() -> u64 {
    getrandom::u64().unwrap_or(0)
}

fn random_fraction() -> f64 {
    // Jitter needs no secrecy: a system that has no randomness to give gets the middle.
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

/// Between half of it and one and a half.
pub(super) fn around(interval: Duration) -> Duration {
    interval.mul_f64(0.5 + random_fraction())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_never_shorter_and_an_interval_of_renewal_never_longer() {
        let second = Duration::from_secs(1);
        for _ in 0..1_000 {
            let ttl = prolonged(second);
            assert!(ttl >= second && ttl <= longest(second), "{ttl:?}");
            assert!(shortened(second) <= second && shortened(second) >= second * 9 / 10);
            assert!(around(second) >= second / 2 && around(second) <= second * 3 / 2);
        }
    }
}
