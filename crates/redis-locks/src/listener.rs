//! News of releases, by push: a connection of its own on which the names are subscribed that a caller
//! waits for. It is made when the first is, and kept.
//!
//! While it is broken, or if the server does not let us listen, those who wait ask again by themselves.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::backoff::Backoff;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Client, RedisError};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::calls::{channel, name_of};
use crate::jitter::jitter_seed;
use crate::listening::Registry;

/// How long a server that refused us is left alone.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

pub(super) struct Listener {
    client: Client,
    patience: Duration,
    registry: Arc<Registry>,
    /// Names whose waiters came or went. It ends when the store does.
    changes: mpsc::UnboundedReceiver<String>,
}

/// Why a conversation ended.
enum Ended {
    NobodyLeft,
    Broken,
    Refused,
}

impl Listener {
    pub(super) fn new(
        client: Client,
        patience: Duration,
        registry: Arc<Registry>,
        changes: mpsc::UnboundedReceiver<String>,
    ) -> Listener {
        Listener { client, patience, registry, changes }
    }

    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(jitter_seed());
        loop {
            // The change itself is not needed: a new connection subscribes all that are awaited.
            if self.registry.awaited().is_empty() && self.changes.recv().await.is_none() {
                return;
            }
            let pause = match self.converse(&mut backoff).await {
                Ok(()) | Err(Ended::NobodyLeft) => return,
                Err(Ended::Broken) => backoff.next_delay(),
                Err(Ended::Refused) => REFUSED_PAUSE,
            };
            self.registry.disconnected();
            tokio::time::sleep(pause).await;
        }
    }

    async fn converse(&mut self, backoff: &mut Backoff) -> Result<(), Ended> {
        let connected = timeout(self.patience, self.client.get_async_pubsub()).await;
        let connection = connected.map_err(|_| Ended::Broken)?.map_err(ended_by)?;
        let (sink, mut stream) = connection.split();
        let mut subscriptions =
            Subscriptions { sink, names: HashSet::new(), patience: self.patience };
        for name in self.registry.awaited() {
            subscriptions.adapt(&name, &self.registry).await?;
        }
        backoff.reset();
        loop {
            tokio::select! {
                name = self.changes.recv() => {
                    let name = name.ok_or(Ended::NobodyLeft)?;
                    subscriptions.adapt(&name, &self.registry).await?;
                }
                reported = next_release(&mut stream) => {
                    self.registry.released(&reported.ok_or(Ended::Broken)?);
                }
            }
        }
    }
}

struct Subscriptions {
    sink: PubSubSink,
    names: HashSet<String>,
    patience: Duration,
}

impl Subscriptions {
    /// Makes the subscription of the name what its waiters need.
    async fn adapt(&mut self, name: &str, registry: &Registry) -> Result<(), Ended> {
        let is_awaited = registry.is_awaited(name);
        if is_awaited && self.names.insert(name.to_owned()) {
            let subscribed = timeout(self.patience, self.sink.subscribe(channel(name))).await;
            subscribed.map_err(|_| Ended::Broken)?.map_err(ended_by)?;
        } else if !is_awaited && self.names.remove(name) {
            let ended = timeout(self.patience, self.sink.unsubscribe(channel(name))).await;
            ended.map_err(|_| Ended::Broken)?.map_err(ended_by)?;
        }
        if is_awaited {
            registry.connected(name);
        }
        Ok(())
    }
}

/// The name of a lock that was released; `None` when the connection has ended.
async fn next_release(stream: &mut PubSubStream) -> Option<String> {
    loop {
        let message = stream.next().await?;
        if let Some(name) = name_of(message.get_channel_name()) {
            return Some(name.to_owned());
        }
    }
}

fn ended_by(error: RedisError) -> Ended {
    tracing::debug!("no news of releases from the efficiency tier: {error}");
    if error.is_io_error() { Ended::Broken } else { Ended::Refused }
}
