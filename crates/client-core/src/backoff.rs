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

    /// As [`Backoff::next_delay`], after what a node has told to wait. Many requests that wait for a place do not all come
    /// when there is the next one.
    pub fn delay_after(&mut self, retry_after: Option<Duration>) -> Duration {
        retry_after.unwrap_or_default() + self.next_delay()
    }

    pub fn longest_after(told: Duration) -> Duration {
        told + LONGEST
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

/// How long a node may take over a handshake of TLS. A node whose clients all come back at one moment makes their handshakes
/// one after another. Clients that gave up after a fixed time would make it work for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakePatience {
    now: Duration,
    longest: Duration,
}

impl HandshakePatience {
    const SHORTEST: Duration = Duration::from_secs(1);

    /// Of a client whose sessions have this TTL: another node must have time to answer before the lease ends.
    pub fn new(ttl: Duration) -> HandshakePatience {
        HandshakePatience { now: Self::SHORTEST, longest: (ttl / 3).max(Self::SHORTEST) }
    }

    pub fn duration(self) -> Duration {
        self.now
    }

    /// After a handshake, or an attempt that took too long.
    pub fn note(&mut self, took_too_long: bool) {
        self.now = if took_too_long { (self.now * 2).min(self.longest) } else { Self::SHORTEST };
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

    #[test]
    fn no_client_comes_back_before_the_time_that_it_was_told() {
        let (mut backoff, told) = (Backoff::new(7), Duration::from_secs(2));
        for _ in 0..100 {
            let delay = backoff.delay_after(Some(told));
            assert!(delay > told && delay <= Backoff::longest_after(told), "{delay:?}");
        }
        // Requests that wait for places come less often, the longer they wait.
        assert!(backoff.delay_after(Some(Duration::from_millis(1))) > LONGEST / 2);
    }

    #[test]
    fn the_patience_with_handshakes_grows_while_they_take_too_long() {
        let seconds = |ttl, tries| {
            let mut patience = HandshakePatience::new(Duration::from_secs(ttl));
            for _ in 0..tries {
                patience.note(true);
            }
            let long = patience.duration();
            patience.note(false);
            assert_eq!(patience.duration(), HandshakePatience::SHORTEST);
            long.as_secs()
        };
        assert_eq!([0, 1, 2, 3, 4, 5].map(|tries| seconds(30, tries)), [1, 2, 4, 8, 10, 10]);
        assert_eq!([0, 1, 2].map(|tries| seconds(2, tries)), [1, 1, 1]);
    }
}
