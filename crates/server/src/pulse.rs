//! Whether the shard's loop turns. It does once a second or more often, whatever the cluster is like; only a disk that does
//! not answer, or a bug, stops it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Past it nobody should be sent here.
const LATE_AFTER: Duration = Duration::from_secs(2);
/// Past it the process may as well be started again.
const STOPPED_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Pulse {
    started: Instant,
    /// Milliseconds after the start.
    last_turn_ms: AtomicU64,
}

impl Pulse {
    pub(crate) fn new() -> Pulse {
        Pulse { started: Instant::now(), last_turn_ms: AtomicU64::new(0) }
    }

    /// The loop has come round.
    pub(crate) fn beat(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_turn_ms.store(now, Ordering::Relaxed);
    }

    /// Since the node began.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn is_late(&self) -> bool {
        self.silence() > LATE_AFTER
    }

    /// For how long the loop has stood still, if that is long.
    pub(crate) fn stopped_for(&self) -> Option<Duration> {
        Some(self.silence()).filter(|silence| *silence > STOPPED_AFTER)
    }

    fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last_turn_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent_for(silence: Duration) -> Pulse {
        Pulse { started: Instant::now() - silence, last_turn_ms: AtomicU64::new(0) }
    }

    #[test]
    fn a_loop_that_stands_still_is_late_first_and_stopped_then_until_it_turns_again() {
        let pulse = silent_for(Duration::ZERO);
        assert!(!pulse.is_late() && pulse.stopped_for().is_none());
        let pulse = silent_for(Duration::from_secs(5));
        assert!(pulse.is_late() && pulse.stopped_for().is_none());
        let pulse = silent_for(Duration::from_secs(11));
        assert!(pulse.stopped_for().is_some_and(|time| time.as_secs() == 11));
        pulse.beat();
        assert!(!pulse.is_late() && pulse.stopped_for().is_none());
    }
}
