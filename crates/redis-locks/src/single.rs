//! A store of one Redis.

use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::circuit::CircuitState;
use redis::Client;
use tokio::sync::watch;

use crate::health::Health;
use crate::listener::Listener;
use crate::listening::{Listening, Registry};
use crate::node::Node;
use crate::store::{Answer, Attempt, Claim, Store};

#[derive(Debug)]
pub(crate) struct SingleRedis {
    node: Arc<Node>,
    health: Arc<Health>,
    registry: Arc<Registry>,
    listener: tokio::task::AbortHandle,
}

impl SingleRedis {
    pub(crate) fn new(client: Client, patience: Duration) -> SingleRedis {
        let health = Arc::new(Health::of(1, 1));
        let node = Node::new(0, client, patience, Arc::clone(&health));
        let (registry, changes) = Registry::new();
        let listener =
            Listener::new(node.client().clone(), patience, Arc::clone(&registry), changes);
        let listener = tokio::spawn(listener.run()).abort_handle();
        SingleRedis { node, health, registry, listener }
    }
}

impl Store for SingleRedis {
    fn acquire<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Answer<'a, Attempt> {
        Box::pin(self.node.acquire(claim, ttl))
    }

    fn extend<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Answer<'a, bool> {
        Box::pin(self.node.extend(claim, ttl))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Answer<'a, bool> {
        Box::pin(self.node.release(claim))
    }

    fn listen(&self, name: &str) -> Option<Listening> {
        Some(self.registry.listen(name))
    }

    fn circuit(&self) -> watch::Receiver<CircuitState> {
        self.health.circuit()
    }

    fn returns(&self) -> watch::Receiver<u64> {
        self.health.returns()
    }
}

impl Drop for SingleRedis {
    fn drop(&mut self) {
        self.listener.abort();
    }
}
