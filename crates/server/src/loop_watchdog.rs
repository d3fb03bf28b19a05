//! Watches whether the shard's loop turns. It turns at least once a second, whatever the state of the cluster. Only a
//! disk that does not answer, or a bug, stops it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// After so long the node is not ready: clients should use other nodes.
const LATE_AFTER: Duration = Duration::from_secs(2);
/// After so long the node is not alive: the process should be restarted.
const STOPPED_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct LoopWatchdog {
    started: Instant,
    /// Milliseconds after the start.
    last_turn_ms: AtomicU64,
}

impl LoopWatchdog {
    pub(crate) fn new() -> LoopWatchdog {
        LoopWatchdog { started: Instant::now(), last_turn_ms: AtomicU64::new(0) }
    }

    /// The loop has turned.
    pub(crate) fn record_turn(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_turn_ms.store(now, Ordering::Relaxed);
    }

    /// The time since the node started.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn is_late(&self) -> bool {
        self.since_last_turn() > LATE_AFTER
    }

    /// For how long the loop has stood still, if that is long.
    pub(crate) fn stopped_for(&self) -> Option<Duration> {
        Some(self.since_last_turn()).filter(|time| *time > STOPPED_AFTER)
    }

    fn since_last_turn(&self) -> Duration {
        let last = Duration::from_millis(self.last_turn_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent_for(silence: Duration) -> LoopWatchdog {
        LoopWatchdog { started: Instant::now() - silence, last_turn_ms: AtomicU64::new(0) }
    }

    #[test]
    fn a_loop_that_stands_still_is_late_first_and_then_stopped_until_it_turns() {
        let watchdog = silent_for(Duration::ZERO);
        assert!(!watchdog.is_late() && watchdog.stopped_for().is_none());
        let watchdog = silent_for(Duration::from_secs(5));
        assert!(watchdog.is_late() && watchdog.stopped_for().is_none());
        let watchdog = silent_for(Duration::from_secs(11));
        assert!(watchdog.stopped_for().is_some_and(|time| time.as_secs() == 11));
        watchdog.record_turn();
        assert!(!watchdog.is_late() && watchdog.stopped_for().is_none());
    }
}
