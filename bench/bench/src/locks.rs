//! What a lock service must offer to be measured.

use std::future::Future;
use std::sync::Arc;

use crate::Outcome;

/// One client of a service. Many of them can share a connection.
pub trait Locks: Sized + Send + Sync + 'static {
    /// A lock, or several that were taken at one moment.
    type Held: Send;

    /// Another client over the same connection. If both want one lock, one of them waits.
    fn another(&self) -> impl Future<Output = Outcome<Self>> + Send;

    /// Takes a lock, however long that takes.
    fn acquire(&self, name: &str) -> impl Future<Output = Outcome<Self::Held>> + Send;

    /// Returns when the service says that it is free. A lock that was lost meanwhile is an error.
    fn release(&self, held: Self::Held) -> impl Future<Output = Outcome> + Send;

    /// Takes several, whose names are given in order. A service that cannot take them at one moment is asked for one
    /// after the other, and every client asks in the same order.
    fn acquire_all(
        &self,
        names: &[String],
    ) -> impl Future<Output = Outcome<Vec<Self::Held>>> + Send {
        async move {
            let mut held = Vec::with_capacity(names.len());
            for name in names {
                held.push(self.acquire(name).await?);
            }
            Ok(held)
        }
    }

    /// Who holds a lock, as of a moment after the question. None: the service has no such answer.
    fn read(&self, name: &str) -> impl Future<Output = Outcome<Option<()>>> + Send;

    /// Nothing of it is left behind in the service.
    fn close(self) -> impl Future<Output = Outcome> + Send;
}

/// A service that clients can connect to.
pub trait Connections {
    type Client: Locks;

    /// The first client over a connection of its own.
    fn connect(&self) -> impl Future<Output = Outcome<Self::Client>>;
}

/// So many clients over so many connections, in turn.
pub async fn clients_over<S: Connections>(
    service: &S,
    clients: usize,
    connections: usize,
) -> Outcome<Vec<Arc<S::Client>>> {
    let mut all: Vec<Arc<S::Client>> = Vec::with_capacity(clients);
    for number in 0..clients {
        let client = match number.checked_sub(connections) {
            Some(first) => all[first].another().await?,
            None => service.connect().await?,
        };
        all.push(Arc::new(client));
    }
    Ok(all)
}

/// Those that no client uses any more.
pub async fn close_all<L: Locks>(clients: Vec<Arc<L>>) -> Outcome {
    for client in clients.into_iter().filter_map(Arc::into_inner) {
        client.close().await?;
    }
    Ok(())
}
