//! A reading of the clock by which the leader lease is measured.

use std::ops::Add;
use std::time::Duration;

/// The time since the machine was started, sleep included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(pub Duration);

impl BootTime {
    /// Zero if `earlier` is in fact later.
    pub fn saturating_since(self, earlier: BootTime) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for BootTime {
    type Output = BootTime;

    fn add(self, span: Duration) -> BootTime {
        BootTime(self.0.saturating_add(span))
    }
}
