//! One Redis, and locks in it as they are usually taken: `SET NX PX` with a value that only the owner knows, and a script
//! that deletes it if it is still the owner's. No client is queued: a client that finds it taken asks again at once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_bench::{Connections, Locks, Outcome, Servers};
use holdfast_cluster_kit::Addresses;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script, Value};

use crate::server::{Installation, Server, until_ready};
use crate::service::Service;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const TTL_MS: u64 = 60_000;
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// What is kept over a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Nothing,
    /// `appendfsync always`.
    Everything,
}

#[derive(Debug)]
pub(crate) struct Redis {
    server: Server,
    client: Client,
    durability: Durability,
}

impl Redis {
    pub(crate) async fn start(
        installation: &Installation,
        program: &Path,
        name: &str,
        durability: Durability,
    ) -> Outcome<Redis> {
        let addresses = Addresses::choose(1);
        let address = addresses.client.values().next().ok_or("no address")?;
        let port = address.rsplit_once(':').map_or("", |(_, port)| port);
        let directory = installation.new_directory(name)?.display().to_string();
        let appends: &[&str] = match durability {
            Durability::Nothing => &["--appendonly", "no"],
            Durability::Everything => &["--appendonly", "yes", "--appendfsync", "always"],
        };
        let options = ["--port", port, "--bind", "127.0.0.1", "--dir", &directory, "--save", ""];
        let options = options.iter().chain(appends);
        let server = Server::start(installation, name, program, options)?;
        let client = Client::open(format!("redis://{address}/"))?;
        let mut servers = [server];
        let ask = async || open(&client).await;
        until_ready("Redis", &mut servers, ask).await?;
        let [server] = servers;
        Ok(Redis { server, client, durability })
    }

    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }
}

/// Half a second, the default, is too short for a thousand clients on a busy machine.
async fn open(client: &Client) -> Outcome<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE_TIMEOUT));
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// One connection, which clients share.
#[derive(Clone)]
pub(crate) struct RedisClient {
    connection: MultiplexedConnection,
    release: Arc<Script>,
    owners: Arc<AtomicU64>,
}

impl Connections for Redis {
    type Client = RedisClient;

    async fn connect(&self) -> Outcome<RedisClient> {
        Ok(RedisClient {
            connection: open(&self.client).await?,
            release: Arc::new(Script::new(RELEASE)),
            owners: Arc::default(),
        })
    }
}

impl Service for Redis {
    fn name(&self) -> &'static str {
        match self.durability {
            Durability::Nothing => "redis",
            Durability::Everything => "redis-fsync",
        }
    }

    fn servers(&self) -> Servers {
        Servers(vec![self.pid()])
    }
}

impl RedisClient {
    /// A value that no other client has.
    pub(super) fn new_owner(&self) -> String {
        let number = self.owners.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::as_ptr(&self.owners).addr();
        format!("{connection:016x}{number:016x}")
    }

    /// False: a client has it.
    pub(super) async fn try_acquire(&self, name: &str, owner: &str) -> Outcome<bool> {
        let mut set = redis::cmd("SET");
        set.arg(name).arg(owner).arg("NX").arg("PX").arg(TTL_MS);
        match set.query_async(&mut self.connection.clone()).await? {
            Value::Okay => Ok(true),
            Value::Nil => Ok(false),
            other => Err(format!("SET was answered with {other:?}").into()),
        }
    }

    /// False: it was not this owner's.
    pub(super) async fn delete(&self, name: &str, owner: &str) -> Outcome<bool> {
        let mut call = self.release.key(name);
        let deleted: i64 = call.arg(owner).invoke_async(&mut self.connection.clone()).await?;
        Ok(deleted == 1)
    }
}

impl Locks for RedisClient {
    /// The name and the owner.
    type Held = (String, String);

    async fn another(&self) -> Outcome<RedisClient> {
        Ok(self.clone())
    }

    async fn acquire(&self, name: &str) -> Outcome<(String, String)> {
        let owner = self.new_owner();
        while !self.try_acquire(name, &owner).await? {}
        Ok((name.to_owned(), owner))
    }

    async fn release(&self, (name, owner): (String, String)) -> Outcome {
        if self.delete(&name, &owner).await? {
            Ok(())
        } else {
            Err(format!("{name} was lost").into())
        }
    }

    async fn read(&self, name: &str) -> Outcome<Option<()>> {
        let mut get = redis::cmd("GET");
        let owner: Option<String> = get.arg(name).query_async(&mut self.connection.clone()).await?;
        owner.map(|_| Some(())).ok_or_else(|| format!("{name} is said to be free").into())
    }

    async fn close(self) -> Outcome {
        Ok(())
    }
}
