//! The state of a circuit breaker, as others see it change.

use holdfast_client_core::circuit::CircuitState;
use tokio::sync::watch;

/// The state of a client's circuit breaker, as it changes; see [`Client::circuit`](crate::Client::circuit).
#[derive(Debug, Clone)]
pub struct Circuit(pub(crate) watch::Receiver<CircuitState>);

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
