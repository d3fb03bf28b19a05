//! The time that counts: after the load has warmed up, and while all of it goes on.

use std::time::{Duration, Instant};

/// How long a turn takes.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    pub warm_up: Duration,
    pub measured: Duration,
}

#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub from: Instant,
    pub end: Instant,
}

impl Window {
    pub fn beginning_now(length: Length) -> Window {
        let from = Instant::now() + length.warm_up;
        Window { from, end: from + length.measured }
    }

    /// Whether clients go on.
    pub fn is_open(&self) -> bool {
        Instant::now() < self.end
    }

    /// Whether what was answered now is counted.
    pub fn counts(&self, answered: Instant) -> bool {
        self.from <= answered && answered < self.end
    }

    pub fn seconds(&self) -> f64 {
        (self.end - self.from).as_secs_f64()
    }
}
