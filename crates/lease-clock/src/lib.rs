//! The clock that leases are counted on.
//!
//! It must run on while the machine sleeps: a laptop that was closed for an hour has lost its locks,
//! and has to know it before it reads a single message.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use holdfast_client_core::lease::LocalTime;

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
/// Caveat: on other systems the monotonic clock may stand still during sleep.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

pub fn now() -> LocalTime {
    let time = clock_gettime(CLOCK);
    // The kernel counts both from boot, so neither is ever negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    LocalTime(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let first = now();
        assert!(first > LocalTime(Duration::ZERO));
        assert!(now() >= first);
    }
}
