//! A circuit breaker: when no node has been of use for a while, calls fail at once instead of each waiting in
//! vain. The session's own task goes on trying, at its usual pace, because held locks depend on it; its tries
//! are what closes the circuit again.

use std::time::Duration;

use tokio::sync::watch;

use crate::lease::LocalTime;

/// For so long no node has to be of use. An election of the cluster's takes less.
const OPEN_AFTER: Duration = Duration::from_secs(3);

/// Whether calls are made at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CircuitState {
    /// Calls are made.
    Closed,
    /// Calls fail at once: for some time no node was of use.
    Open,
    /// Calls fail still, while a node is tried.
    HalfOpen,
}

/// The state of a client's circuit breaker, as it changes; see [`Client::circuit`](crate::Client::circuit).
#[derive(Debug, Clone)]
pub struct Circuit(watch::Receiver<CircuitState>);

impl Circuit {
    pub fn state(&self) -> CircuitState {
        *self.0.borrow()
    }

    /// Returns the state when it is another one than that which was returned last. States that last no time
    /// may be left out. Once the client is closed, this never returns.
    pub async fn changed(&mut self) -> CircuitState {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        *self.0.borrow_and_update()
    }

    /// Returns when calls are made: before a call that failed is tried again.
    pub async fn closed(&mut self) {
        if self.0.wait_for(|state| *state == CircuitState::Closed).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Opens and closes the circuit. Pure: the time is an argument.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: watch::Sender<CircuitState>,
    /// When the first of the tries began that were all in vain.
    failing_since: Option<LocalTime>,
    open_after: Duration,
}

impl Breaker {
    pub(crate) fn new() -> Breaker {
        Breaker::opening_after(OPEN_AFTER)
    }

    /// For something that is to be given up sooner or later than a cluster.
    pub(crate) fn opening_after(open_after: Duration) -> Breaker {
        let state = watch::Sender::new(CircuitState::Closed);
        Breaker { state, failing_since: None, open_after }
    }

    pub(crate) fn observe(&self) -> Circuit {
        Circuit(self.state.subscribe())
    }

    /// A node is about to be tried.
    pub(crate) fn handle_try(&mut self, now: LocalTime) {
        self.failing_since.get_or_insert(now);
        if *self.state.borrow() == CircuitState::Open {
            self.change_to(CircuitState::HalfOpen);
        }
    }

    /// The node was of no use.
    pub(crate) fn handle_failure(&mut self, now: LocalTime) {
        let failing_for = self.failing_since.map(|since| now.saturating_since(since));
        if !self.is_closed() || failing_for.is_some_and(|span| span >= self.open_after) {
            self.change_to(CircuitState::Open);
        }
    }

    /// The node serves the session.
    pub(crate) fn handle_success(&mut self) {
        self.failing_since = None;
        self.change_to(CircuitState::Closed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.state.borrow() == CircuitState::Closed
    }

    fn change_to(&mut self, state: CircuitState) {
        self.state.send_if_modified(|current| std::mem::replace(current, state) != state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> LocalTime {
        LocalTime(Duration::from_secs(seconds))
    }

    #[test]
    fn it_opens_when_no_node_was_of_use_for_a_while_and_closes_when_one_is() {
        let mut breaker = Breaker::new();
        let circuit = breaker.observe();
        for second in [10, 11, 12] {
            breaker.handle_try(at(second));
            breaker.handle_failure(at(second));
            assert_eq!(circuit.state(), CircuitState::Closed, "after {second} s");
        }
        breaker.handle_try(at(13));
        breaker.handle_failure(at(13));
        assert_eq!(circuit.state(), CircuitState::Open);
        breaker.handle_try(at(14));
        assert_eq!(circuit.state(), CircuitState::HalfOpen);
        breaker.handle_failure(at(14));
        assert_eq!(circuit.state(), CircuitState::Open);
        breaker.handle_try(at(15));
        breaker.handle_success();
        assert_eq!(circuit.state(), CircuitState::Closed);
        // The next trouble begins anew.
        breaker.handle_try(at(100));
        breaker.handle_failure(at(101));
        assert_eq!(circuit.state(), CircuitState::Closed);
    }
}
