//! The clock that the leader's quorum lease for the efficiency tier is counted on.
//!
//! It runs on while the machine sleeps. The clock of [`std::time::Instant`] stands still then: a leader whose machine
//! slept for an hour would wake up sure of a quorum that has elected another leader long ago.

use std::time::Duration;

use holdfast_engine::BootTime;
use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
/// Caveat: on other systems the monotonic clock may stand still during sleep.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

pub(crate) fn now() -> BootTime {
    let time = clock_gettime(CLOCK);
    // The kernel counts both from boot, so neither is ever negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    BootTime(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_boot_clock_includes_the_time_asleep() {
        // What the kernel says there is of this clock, in hundredths of a second.
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
        let now = now();
        assert!(
            (now.0.as_secs_f64() - uptime).abs() < 5.0,
            "{now:?}, and the kernel says {uptime}"
        );
        assert_eq!(CLOCK, ClockId::Boottime);
    }

    #[test]
    fn the_boot_clock_never_goes_back() {
        let first = now();
        assert!(now() >= first);
        assert_eq!(first.saturating_since(first + Duration::from_secs(1)), Duration::ZERO);
    }
}
