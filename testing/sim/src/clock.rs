//! The monotonic clock of each node and client. It has an arbitrary start and a rate of its own; nothing inside the
//! run can read the real time. It can stand still, as that of a machine that is paused does; and it can leap
//! ahead, as the same machine's may when it goes on.

use std::time::Duration;

use crate::history::RealTime;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalClock {
    start_us: u64,
    /// How much faster than real time it runs, in parts per million.
    drift_ppm: i64,
    /// Since when it stands still, and how many reasons there are for it.
    stopped: Option<(RealTime, u32)>,
    /// For how long it stood still before.
    stood_us: u64,
    leapt_us: u64,
}

impl LocalClock {
    pub(crate) fn new(start_us: u64, drift_ppm: i64) -> LocalClock {
        LocalClock { start_us, drift_ppm, stopped: None, stood_us: 0, leapt_us: 0 }
    }

    pub(crate) fn stop(&mut self, now: RealTime) {
        let (since, reasons) = self.stopped.unwrap_or((now, 0));
        self.stopped = Some((since, reasons + 1));
    }

    /// Runs again from where it stopped. Gives since when it stood still, if it goes on now.
    pub(crate) fn go_on(&mut self, now: RealTime) -> Option<RealTime> {
        let (since, reasons) = self.stopped?;
        if reasons > 1 {
            self.stopped = Some((since, reasons - 1));
            return None;
        }
        self.stopped = None;
        self.stood_us += now.0 - since.0;
        Some(since)
    }

    pub(crate) fn leap(&mut self, ahead_us: u64) {
        self.leapt_us += ahead_us;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    pub(crate) fn stopped_since(&self) -> Option<RealTime> {
        self.stopped.map(|(since, _)| since)
    }

    pub(crate) fn at(&self, real: RealTime) -> Duration {
        let ran_until = self.stopped.map_or(real, |(since, _)| since.min(real));
        let ran_us = ran_until.0.saturating_sub(self.stood_us) as i128;
        let drift = ran_us * i128::from(self.drift_ppm) / 1_000_000;
        Duration::from_micros(self.start_us + self.leapt_us + (ran_us + drift).max(0) as u64)
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

    #[test]
    fn a_clock_that_stood_still_goes_on_from_there_once_nothing_holds_it() {
        let mut clock = LocalClock::new(0, 0);
        clock.stop(RealTime(10));
        clock.stop(RealTime(20));
        assert_eq!(clock.at(RealTime(30)), Duration::from_micros(10));
        assert_eq!(clock.go_on(RealTime(40)), None);
        assert_eq!(clock.go_on(RealTime(50)), Some(RealTime(10)));
        assert_eq!(clock.at(RealTime(60)), Duration::from_micros(20));
        clock.leap(100);
        assert_eq!(clock.at(RealTime(60)), Duration::from_micros(120));
    }
}
