//! How long to wait before the next attempt to connect.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(20);
const LAST: Duration = Duration::from_millis(500);

/// Doubles from 20 ms to 500 ms. Each wait is drawn from its upper half, so that the nodes of a
/// cluster that started together do not dial each other in step.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff { next: FIRST }
    }

    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }

    pub(super) fn wait(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(LAST);
        full.mul_f64(0.5 + 0.5 * random_fraction())
    }
}

/// From 0 to 1. Without randomness the wait is still a wait.
fn random_fraction() -> f64 {
    let number = getrandom::u32().unwrap_or(u32::MAX);
    f64::from(number) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_half_a_second_and_start_over_after_a_success() {
        let mut backoff = Backoff::new();
        assert!((FIRST / 2..=FIRST).contains(&backoff.wait()));
        for _ in 0..20 {
            backoff.wait();
        }
        assert!((LAST / 2..=LAST).contains(&backoff.wait()));
        backoff.reset();
        assert!((FIRST / 2..=FIRST).contains(&backoff.wait()));
    }
}
