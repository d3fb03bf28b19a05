//! One Redis that keeps nothing, and locks in it as they are usually taken: `SET NX PX` with a value that only
//! the owner knows, and a script that deletes it if it is still the owner's.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, Script, Value};

use crate::Outcome;

const START_PATIENCE: Duration = Duration::from_secs(10);
const TTL_MS: u64 = 30_000;
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

#[derive(Debug)]
pub(crate) struct RedisServer {
    process: Child,
    client: Client,
}

impl RedisServer {
    pub(crate) async fn start() -> Outcome<RedisServer> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server cannot be started: {error}; install it"))?;
        let server =
            RedisServer { process, client: Client::open(format!("redis://127.0.0.1:{port}/"))? };
        let deadline = Instant::now() + START_PATIENCE;
        while server.connect().await.is_err() {
            if Instant::now() > deadline {
                return Err("redis-server did not start".into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(server)
    }

    pub(crate) async fn connect(&self) -> Outcome<RedisLocks> {
        Ok(RedisLocks {
            connection: self.client.get_multiplexed_async_connection().await?,
            release: Arc::new(Script::new(RELEASE)),
            owners: Arc::default(),
        })
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One connection, shared by its clones.
#[derive(Clone)]
pub(crate) struct RedisLocks {
    connection: MultiplexedConnection,
    release: Arc<Script>,
    owners: Arc<AtomicU64>,
}

impl RedisLocks {
    /// The value by which the owner is known.
    pub(crate) async fn acquire(&self, name: &str) -> Outcome<String> {
        let number = self.owners.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{:016x}{number:016x}", std::process::id());
        let mut set = redis::cmd("SET");
        set.arg(name).arg(&owner).arg("NX").arg("PX").arg(TTL_MS);
        match set.query_async(&mut self.connection.clone()).await? {
            Value::Okay => Ok(owner),
            other => Err(format!("{name} is held: {other:?}").into()),
        }
    }

    pub(crate) async fn release(&self, name: &str, owner: &str) -> Outcome {
        let mut call = self.release.key(name);
        let deleted: i64 = call.arg(owner).invoke_async(&mut self.connection.clone()).await?;
        if deleted == 1 { Ok(()) } else { Err(format!("{name} was lost").into()) }
    }
}
