//! A store of one Redis.

use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use tokio::sync::watch;

use super::listener::Listener;
use super::node::Node;
use crate::circuit::Circuit;
use crate::efficiency::ServedBy;
use crate::efficiency::outside::health::Health;
use crate::efficiency::outside::listening::{Listening, Registry};
use crate::efficiency::outside::store::{Answer, Attempt, Claim, Store};

#[derive(Debug)]
pub(crate) struct OneRedis {
    node: Arc<Node>,
    health: Arc<Health>,
    registry: Arc<Registry>,
    listener: tokio::task::AbortHandle,
}

impl OneRedis {
    pub(crate) fn new(client: Client, patience: Duration) -> OneRedis {
        let health = Arc::new(Health::of(1, 1));
        let node = Node::new(0, client, patience, Arc::clone(&health));
        let (registry, changes) = Registry::new();
        let listener =
            Listener::new(node.client().clone(), patience, Arc::clone(&registry), changes);
        let listener = tokio::spawn(listener.run()).abort_handle();
        OneRedis { node, health, registry, listener }
    }
}

impl Store for OneRedis {
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

    fn served_by(&self) -> ServedBy {
        ServedBy::Redis
    }

    fn circuit(&self) -> Circuit {
        self.health.circuit()
    }

    fn returns(&self) -> watch::Receiver<u64> {
        self.health.returns()
    }
}

impl Drop for OneRedis {
    fn drop(&mut self) {
        self.listener.abort();
    }
}
