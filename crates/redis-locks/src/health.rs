//! How many of the servers are of use, and the circuit breaker that follows from it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_client_core::circuit::{Breaker, CircuitState};
use tokio::sync::watch;

use holdfast_lease_clock as clock;

/// For so long too few servers have to be of use. There is no election to be waited for, as with the cluster.
const OPEN_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Health {
    state: Mutex<State>,
    circuit: watch::Sender<CircuitState>,
    returns: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    /// By server. One that was never asked counts as of use.
    is_up: Vec<bool>,
    /// How many of them it takes.
    needed: usize,
}

impl Health {
    pub(super) fn of(servers: usize, needed: usize) -> Health {
        let breaker = Breaker::opening_after(OPEN_AFTER);
        let state = State { breaker, is_up: vec![true; servers], needed };
        Health {
            state: Mutex::new(state),
            circuit: watch::Sender::new(CircuitState::Closed),
            returns: watch::Sender::new(0),
        }
    }

    /// The server that was gone is about to be tried.
    pub(super) fn trying(&self) {
        let mut state = self.state();
        if !state.are_enough_up() {
            state.breaker.handle_try(clock::now());
            self.publish(&state);
        }
    }

    pub(super) fn came_up(&self, server: usize) {
        let mut state = self.state();
        state.is_up[server] = true;
        if state.are_enough_up() {
            state.breaker.handle_success();
            self.publish(&state);
        }
        drop(state);
        self.returns.send_modify(|count| *count += 1);
    }

    pub(super) fn went_down(&self, server: usize) {
        let mut state = self.state();
        state.is_up[server] = false;
        if !state.are_enough_up() {
            state.breaker.handle_try(clock::now());
            state.breaker.handle_failure(clock::now());
            self.publish(&state);
        }
    }

    pub(super) fn circuit(&self) -> watch::Receiver<CircuitState> {
        self.circuit.subscribe()
    }

    fn publish(&self, state: &State) {
        let state = state.breaker.state();
        self.circuit.send_if_modified(|now| std::mem::replace(now, state) != state);
    }

    pub(super) fn returns(&self) -> watch::Receiver<u64> {
        self.returns.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn are_enough_up(&self) -> bool {
        self.is_up.iter().filter(|is_up| **is_up).count() >= self.needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minority_that_is_down_is_no_failure_of_the_whole() {
        let health = Health::of(5, 3);
        health.went_down(0);
        health.went_down(1);
        assert!(health.state().are_enough_up());
        health.went_down(2);
        assert!(!health.state().are_enough_up());
        assert_eq!(*health.circuit().borrow(), CircuitState::Closed, "for a moment it may");
        health.came_up(0);
        assert!(health.state().are_enough_up());
        assert!(health.returns().has_changed().is_ok());
    }
}
