//! A circuit breaker: when no node has served the session for a while, calls fail at once instead of waiting in vain.
//! The session goes on trying at its usual pace, because held locks depend on it. A successful try closes the circuit
//! again.

use std::time::Duration;

use crate::lease::LocalTime;

/// The circuit opens when no node served the session for so long. An election takes less.
const OPEN_AFTER: Duration = Duration::from_secs(3);

/// Whether calls are made at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CircuitState {
    /// Calls are made.
    Closed,
    /// Calls fail at once: for some time no node served the session.
    Open,
    /// Calls fail still, while a node is tried.
    HalfOpen,
}

/// Opens and closes the circuit.
#[derive(Debug)]
pub struct Breaker {
    state: CircuitState,
    /// When the first of the present series of failed tries began.
    failing_since: Option<LocalTime>,
    open_after: Duration,
}

impl Breaker {
    pub fn new() -> Breaker {
        Breaker::opening_after(OPEN_AFTER)
    }

    /// With another time than that for a cluster.
    pub fn opening_after(open_after: Duration) -> Breaker {
        Breaker { state: CircuitState::Closed, failing_since: None, open_after }
    }

    pub fn state(&self) -> CircuitState {
        self.state
    }

    /// A node is about to be tried.
    pub fn handle_try(&mut self, now: LocalTime) {
        self.failing_since.get_or_insert(now);
        #[cfg(feature = "planted")]
        if crate::planted::Bug::NeverHalfOpen.is_active() {
            return;
        }
        if self.state == CircuitState::Open {
            self.state = CircuitState::HalfOpen;
        }
    }

    /// The node did not serve the session.
    pub fn handle_failure(&mut self, now: LocalTime) {
        let failing_for = self.failing_since.map(|since| now.saturating_since(since));
        if !self.is_closed() || failing_for.is_some_and(|span| span >= self.open_after) {
            self.state = CircuitState::Open;
        }
    }

    /// The node serves the session.
    pub fn handle_success(&mut self) {
        self.failing_since = None;
        self.state = CircuitState::Closed;
    }

    pub fn is_closed(&self) -> bool {
        self.state == CircuitState::Closed
    }
}

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> LocalTime {
        LocalTime(Duration::from_secs(seconds))
    }

    #[test]
    fn the_circuit_opens_when_no_node_was_usable_for_a_while_and_closes_when_one_is() {
        let mut breaker = Breaker::new();
        for second in [10, 11, 12] {
            breaker.handle_try(at(second));
            breaker.handle_failure(at(second));
            assert_eq!(breaker.state(), CircuitState::Closed, "after {second} s");
        }
        breaker.handle_try(at(13));
        breaker.handle_failure(at(13));
        assert_eq!(breaker.state(), CircuitState::Open);
        breaker.handle_try(at(14));
        assert_eq!(breaker.state(), CircuitState::HalfOpen);
        breaker.handle_failure(at(14));
        assert_eq!(breaker.state(), CircuitState::Open);
        breaker.handle_try(at(15));
        breaker.handle_success();
        assert_eq!(breaker.state(), CircuitState::Closed);
        // The next failures are counted from their own start.
        breaker.handle_try(at(100));
        breaker.handle_failure(at(101));
        assert_eq!(breaker.state(), CircuitState::Closed);
    }
}
