//! Clients whose cluster does nothing but greet them, and a Redis.

use std::time::{Duration, Instant};

use holdfast_client::{AcquireError, Client, ClientBuilder, Efficiency, Guard, LockRequest, Tier};
use redis::aio::MultiplexedConnection;

use crate::server::{Durability, RedisServer};
use crate::support::FakeNode;

/// Far more than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct Scene {
    pub(crate) server: RedisServer,
    pub(crate) redis: MultiplexedConnection,
}

impl Scene {
    /// `None` if Redis is not installed.
    pub(crate) async fn start() -> Option<Scene> {
        let server = RedisServer::start(Durability::None).await?;
        let redis = server.connect().await;
        Some(Scene { server, redis })
    }

    pub(crate) fn backend(&self) -> Efficiency {
        Efficiency::Redis { url: self.server.url() }
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_of(Client::builder()).await
    }

    pub(crate) async fn client_of(&self, builder: ClientBuilder) -> Client {
        connected(builder.efficiency(self.backend())).await
    }

    /// What the key of the lock has.
    pub(crate) async fn value(&mut self, name: &str) -> Option<String> {
        let mut get = redis::cmd("GET");
        get.arg(format!("holdfast:lock:{name}")).query_async(&mut self.redis).await.unwrap()
    }

    pub(crate) async fn set_value(&mut self, name: &str, value: &str) {
        let mut set = redis::cmd("SET");
        set.arg(format!("holdfast:lock:{name}")).arg(value);
        set.query_async::<()>(&mut self.redis).await.unwrap();
    }

    /// How many connections hear of releases of the name.
    pub(crate) async fn listeners(&mut self, name: &str) -> u64 {
        let mut count = redis::cmd("PUBSUB");
        count.arg("NUMSUB").arg(format!("holdfast:freed:{name}"));
        let (_, count): (String, u64) = count.query_async(&mut self.redis).await.unwrap();
        count
    }
}

/// The cluster answers the greeting, and then nothing any more.
pub(crate) async fn connected(builder: ClientBuilder) -> Client {
    let mut node = FakeNode::start().await;
    let address = node.address.clone();
    let connecting = tokio::spawn(async move { builder.connect(&address).await });
    let stream = node.welcome().await;
    tokio::spawn(async move {
        let _kept = (node, stream);
        std::future::pending::<()>().await;
    });
    connecting.await.unwrap().unwrap()
}

pub(crate) fn lock(client: &Client, name: &str) -> LockRequest {
    client.lock(name).tier(Tier::Efficiency)
}

pub(crate) async fn acquire(client: &Client, name: &str) -> Guard {
    lock(client, name).acquire().await.unwrap()
}

pub(crate) async fn is_busy(client: &Client, name: &str) -> bool {
    match lock(client, name).acquire().await {
        Ok(_) => false,
        Err(AcquireError::Busy) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Asks until it is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let give_up = Instant::now() + LONG;
    while !is_so().await {
        assert!(Instant::now() < give_up, "never: {what}");
        // The interval of asking, not a guess at how long it takes.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
