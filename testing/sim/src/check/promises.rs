//! What a run is held to. The promises of the service depend on its settings; the code that made the run knows
//! them. A run whose clocks went beyond trust says so itself ([`History::rates_broken`]).
//!
//! [`History::rates_broken`]: crate::history::History::rates_broken

use crate::history::{History, RealTime};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promises {
    /// By how much each clock's rate may differ from real time.
    pub clock_error_percent: u64,
    /// How soon a silent session must end; `None` does not judge it.
    pub expiry_bound: Option<ExpiryBound>,
    /// How many configurations the search for a linearization may visit for each name.
    pub linearization_steps_max: u64,
    /// Is a search that gave up a violation?
    pub giving_up_is_a_violation: bool,
}

/// What bounds the life of a silent session, beside its TTL and the time without a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiryBound {
    /// What a new leader grants to sessions that would end soon.
    pub grace_ms: u64,
    /// How often a leader looks for what is due.
    pub tick_ms: u64,
    /// How long a request can be under way before it reaches the log of a leader that can commit. A
    /// request without an answer may have kept its session alive that much later.
    pub delivery_ms: u64,
}

impl Default for Promises {
    fn default() -> Self {
        Promises {
            clock_error_percent: 1,
            expiry_bound: None,
            linearization_steps_max: 1_000_000,
            giving_up_is_a_violation: false,
        }
    }
}

impl Promises {
    /// The earliest real end of a span that a server's clock measured and that began at `from`: the
    /// server's clock may run fast, and so may the one by which the client judges it.
    pub(super) fn earliest(&self, from: RealTime, span_ms: u64) -> RealTime {
        let percent = 100_u64.saturating_sub(2 * self.clock_error_percent);
        RealTime(from.0.saturating_add(span_ms.saturating_mul(10 * percent)))
    }

    /// Did something end at `at` before the span that began at `from` had passed?
    pub(super) fn is_early(
        &self,
        history: &History,
        from: RealTime,
        span_ms: u64,
        at: RealTime,
    ) -> bool {
        RealTime(at.0 + history.clocks.leapt_us(from, at)) < self.earliest(from, span_ms)
    }

    /// The real length, in microseconds, that such a span has at most.
    pub(super) fn longest_us(&self, span_ms: u64) -> u64 {
        span_ms.saturating_mul(10 * (100 + self.clock_error_percent))
    }
}
