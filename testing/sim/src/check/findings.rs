//! How violations name things. Sessions of a test run are no secrets, and a violation must be found again
//! in the trace, so they are shown here.

use std::fmt;

use holdfast_core::{RequestId, SessionId};

use crate::history::{RealTime, Violation};

pub(super) struct Who(pub(super) SessionId);

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {:x}", self.0.0)
    }
}

/// One request of a session.
pub(super) struct Which(pub(super) SessionId, pub(super) RequestId);

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} of {}", self.1.0, Who(self.0))
    }
}

/// A moment of the run, in milliseconds.
pub(super) struct At(pub(super) RealTime);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} ms", self.0.0 / 1_000, self.0.0 % 1_000)
    }
}

/// Collects what one checker finds.
pub(super) struct Findings {
    checker: &'static str,
    violations: Vec<Violation>,
}

impl Findings {
    pub(super) fn of(checker: &'static str) -> Findings {
        Findings { checker, violations: Vec::new() }
    }

    pub(super) fn add(&mut self, what: String) {
        self.violations.push(Violation { checker: self.checker, what });
    }

    pub(super) fn into_violations(self) -> Vec<Violation> {
        self.violations
    }
}
