//! What a session has learned of the nodes, for calls that are made beside it.

use std::sync::{Arc, Mutex, PoisonError};

use holdfast_client_core::endpoints::Endpoints;

#[derive(Debug, Clone)]
pub(crate) struct KnownNodes(Arc<Mutex<Endpoints>>);

impl KnownNodes {
    pub(crate) fn new(endpoints: Endpoints) -> KnownNodes {
        KnownNodes(Arc::new(Mutex::new(endpoints)))
    }

    pub(crate) fn now(&self) -> Endpoints {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn publish(&self, endpoints: &Endpoints) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone_from(endpoints);
    }
}
