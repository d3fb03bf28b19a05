//! The connection to one Redis.
//!
//! One connection serves all callers. Once it is broken they fail at once, and a task of its own brings it back:
//! so a server that hangs costs those who ask for locks one patience, and not one each time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_client_core::backoff::Backoff;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, RedisError, ScriptInvocation,
};
use tokio::sync::Mutex;

use crate::health::Health;
use crate::jitter::jitter_seed;
use crate::store::StoreDown;

/// Written to see whether a server takes writes: one that loads its data, is full, or is a replica does not.
const PROBE: &str = "holdfast:probe";
const PROBE_TTL_MS: u64 = 1_000;

pub(crate) struct Node {
    /// Among the servers of its store.
    number: usize,
    client: Client,
    /// How long a server may take to answer.
    patience: Duration,
    link: Mutex<Link>,
    health: Arc<Health>,
}

#[derive(Debug)]
enum Link {
    NotMade,
    Up { connection: MultiplexedConnection, generation: u64 },
    Down { words: String, generation: u64 },
}

impl Node {
    pub(crate) fn new(
        number: usize,
        client: Client,
        patience: Duration,
        health: Arc<Health>,
    ) -> Arc<Node> {
        let link = Mutex::new(Link::NotMade);
        Arc::new(Node { number, client, patience, link, health })
    }

    /// Its address, without the password that its URL may have.
    pub(super) fn label(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) async fn call<T: FromRedisValue>(
        self: &Arc<Node>,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, StoreDown> {
        let (mut connection, generation) = self.connection().await?;
        match script.invoke_async(&mut connection).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                let message = self.words_of(&error);
                self.broke(generation, message.clone()).await;
                // What the server refused in words it did not do.
                let may_have_happened = !matches!(error.kind(), ErrorKind::Server(_));
                Err(StoreDown { message, may_have_happened })
            }
        }
    }

    async fn connection(self: &Arc<Node>) -> Result<(MultiplexedConnection, u64), StoreDown> {
        // Those who come first wait together for the one connection.
        let mut link = self.link.lock().await;
        match &*link {
            Link::Up { connection, generation } => Ok((connection.clone(), *generation)),
            Link::Down { words, .. } => {
                Err(StoreDown { message: words.clone(), may_have_happened: false })
            }
            Link::NotMade => match self.connect().await {
                Ok(connection) => {
                    *link = Link::Up { connection: connection.clone(), generation: 1 };
                    Ok((connection, 1))
                }
                Err(error) => {
                    let message = self.words_of(&error);
                    self.go_down(&mut link, 0, message.clone());
                    Err(StoreDown { message, may_have_happened: false })
                }
            },
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.patience))
            .set_response_timeout(Some(self.patience));
        let mut connection =
            self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut probe = redis::cmd("SET");
        probe.arg(PROBE).arg("").arg("PX").arg(PROBE_TTL_MS);
        probe.query_async::<()>(&mut connection).await?;
        Ok(connection)
    }

    /// Several callers may find out about the same connection.
    async fn broke(self: &Arc<Node>, generation: u64, words: String) {
        let mut link = self.link.lock().await;
        if matches!(&*link, Link::Up { generation: current, .. } if *current == generation) {
            self.go_down(&mut link, generation, words);
        }
    }

    fn go_down(self: &Arc<Node>, link: &mut Link, generation: u64, words: String) {
        tracing::debug!("a server of the efficiency tier is of no use: {words}");
        *link = Link::Down { words, generation };
        self.health.went_down(self.number);
        tokio::spawn(come_back(Arc::downgrade(self)));
    }

    fn words_of(&self, error: &RedisError) -> String {
        format!("{}: {error}", self.label())
    }

    /// One try. True if there is nothing left to do.
    async fn try_to_come_back(&self) -> bool {
        self.health.trying();
        let connected = self.connect().await;
        let mut link = self.link.lock().await;
        let Link::Down { words, generation } = &mut *link else { return true };
        match connected {
            Ok(connection) => {
                *link = Link::Up { connection, generation: *generation + 1 };
                self.health.came_up(self.number);
                true
            }
            Err(error) => {
                *words = self.words_of(&error);
                self.health.went_down(self.number);
                false
            }
        }
    }
}

/// Goes on until the server is back or no store needs it any more.
async fn come_back(node: Weak<Node>) {
    let mut backoff = Backoff::new(jitter_seed());
    loop {
        tokio::time::sleep(backoff.next_delay()).await;
        let Some(node) = node.upgrade() else { return };
        if node.try_to_come_back().await {
            return;
        }
    }
}

impl std::fmt::Debug for Node {
    /// Its URL may have a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("address", &self.label()).finish_non_exhaustive()
    }
}
