//! How often a reader of the ring wakes.
//!
//! The shard records events some thousand times a second. Waking a reader each time would cost more than reading. So a
//! reader reads the first event at once. While more follow, it reads only at intervals, and then takes all of them.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(crate) struct Pace {
    every: Duration,
    not_before: Instant,
}

impl Pace {
    pub(crate) fn new(every: Duration) -> Pace {
        Pace { every, not_before: Instant::now() }
    }

    /// To be called when there is something to read: returns at once after a silence, else when it is time.
    /// It is safe to drop this future.
    pub(crate) async fn keep(&mut self) {
        let now = Instant::now();
        let due = self.due(now);
        if due > now {
            sleep_until(due).await;
        }
        self.looked(Instant::now());
    }

    fn due(&self, now: Instant) -> Instant {
        self.not_before.max(now)
    }

    fn looked(&mut self, now: Instant) {
        self.not_before = now + self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_read_is_immediate_and_later_ones_keep_the_pace() {
        let every = Duration::from_millis(20);
        let mut pace = Pace::new(every);
        let start = Instant::now();
        assert_eq!(pace.due(start), start);
        pace.looked(start);
        assert_eq!(pace.due(start), start + every);
        assert_eq!(pace.due(start + every / 4), start + every);
        pace.looked(start + every);
        let after_a_silence = start + every * 3;
        assert_eq!(pace.due(after_a_silence), after_a_silence);
    }
}
