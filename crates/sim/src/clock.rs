//! Everybody's own monotonic clock. It has an arbitrary start and a rate of its own; nobody inside the
//! run can read the real time.

use std::time::Duration;

use crate::history::RealTime;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalClock {
    start_us: u64,
    /// How much faster than real time it runs, in parts per million.
    drift_ppm: i64,
}

impl LocalClock {
    pub(crate) fn new(start_us: u64, drift_ppm: i64) -> LocalClock {
        LocalClock { start_us, drift_ppm }
    }

    pub(crate) fn at(&self, real: RealTime) -> Duration {
        let drift = real.0 as i128 * i128::from(self.drift_ppm) / 1_000_000;
        let passed = (real.0 as i128 + drift).max(0) as u64;
        Duration::from_micros(self.start_us + passed)
    }

    /// How much real time passes while this clock counts `local`; rounded up.
    pub(crate) fn real_us_of(&self, local: Duration) -> u64 {
        let rate = (1_000_000 + self.drift_ppm).max(1) as u128;
        (local.as_micros() * 1_000_000).div_ceil(rate) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_counts_more_than_passes() {
        let clock = LocalClock::new(5, 10_000);
        assert_eq!(clock.at(RealTime(1_000_000)), Duration::from_micros(1_010_005));
        assert!(clock.real_us_of(Duration::from_secs(1)) < 1_000_000);
    }
}
