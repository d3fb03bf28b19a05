//! Locks of the efficiency tier that are kept in Redis, and not in the cluster.
//!
//! - `store`: what is asked of a store. `single`: a store of one Redis; `redlock`: of several independent ones.
//! - `acquire`: trying, and waiting for the next try.
//! - `hold` and `keeper`: what is held, and the task that looks after it.
//! - `node`: the connection to one Redis, and how it comes back. `calls`: what one Redis is asked, each a script.
//! - `listener`: news of releases, by push; `listening`: the callers that wait for them.
//! - `health`, `jitter`: what they need for it.
//!
//! There is no queue: of the callers that wait, the first that asks after a release has the lock.
//!
//! A lock is the key `holdfast:lock:NAME` whose value names its owner, with a TTL. Tokens come from one counter
//! for all names, `holdfast:tokens`, so that a name that is not in use costs no memory. Redis Cluster is not for
//! this: it would have to be one slot.

mod acquire;
mod calls;
mod health;
mod hold;
mod jitter;
mod keeper;
mod listener;
mod listening;
mod node;
mod redlock;
mod single;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_client_core::circuit::CircuitState;
use holdfast_client_core::error::{LossReason, Lost};
use holdfast_client_core::hold::ReleaseOutcome;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use keeper::Command;
use redlock::Redlock;
use single::SingleRedis;
use store::Store;

pub use acquire::{NotGranted, Request};
pub use hold::Hold;
pub use store::StoreDown;

/// How long a server may take to answer: a part of the TTL, within these.
const PATIENCE_MIN: Duration = Duration::from_millis(200);
const PATIENCE_MAX: Duration = Duration::from_millis(500);

/// Calls that are under way at a time; more wait for their turn.
const CALLS_MAX: usize = 100_000;

const REDLOCK_SERVERS_MIN: usize = 3;
const REDLOCK_SERVERS_MAX: usize = 15;

/// The locks of one client that are kept in Redis.
#[derive(Debug)]
pub struct RedisLocks {
    store: Arc<dyn Store>,
    /// Of a hold that was asked for without one of its own.
    ttl: Duration,
    closing: watch::Sender<bool>,
    calls: Semaphore,
    counts: Arc<Counters>,
}

/// What became of the holds since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Extensions.
    pub renewed: u64,
    /// Holds that were lost and not released.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Counters {
    renewed: AtomicU64,
    lost: AtomicU64,
}

/// The servers cannot be used like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidServers(pub String);

/// Why a hold was not extended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    #[error(transparent)]
    Lost(#[from] Lost),
    #[error(transparent)]
    Down(StoreDown),
}

/// A guard's part of a hold. When it is gone the keeper releases.
#[derive(Debug)]
pub struct HeldLock {
    pub hold: Arc<Hold>,
    commands: mpsc::Sender<Command>,
}

impl RedisLocks {
    /// In one Redis: `redis://[user:password@]host:port[/database]`. `ttl` is that of a hold that is asked for without one
    /// of its own. Nothing is connected yet.
    pub fn in_one(url: &str, ttl: Duration) -> Result<Arc<RedisLocks>, InvalidServers> {
        Ok(RedisLocks::new(Arc::new(SingleRedis::new(client(url)?, patience(ttl))), ttl))
    }

    /// In several Redis that know nothing of each other: a majority of them has to grant.
    pub fn in_majority(urls: &[String], ttl: Duration) -> Result<Arc<RedisLocks>, InvalidServers> {
        let clients = urls.iter().map(|url| client(url)).collect::<Result<Vec<_>, _>>()?;
        check_servers(&clients)?;
        Ok(RedisLocks::new(Arc::new(Redlock::new(clients, patience(ttl))), ttl))
    }

    fn new(store: Arc<dyn Store>, ttl: Duration) -> Arc<RedisLocks> {
        let (closing, calls) = (watch::Sender::new(false), Semaphore::new(CALLS_MAX));
        Arc::new(RedisLocks { store, ttl, closing, calls, counts: Arc::default() })
    }

    /// Whether the servers are of use.
    pub fn circuit(&self) -> watch::Receiver<CircuitState> {
        self.store.circuit()
    }

    pub fn counts(&self) -> Counts {
        Counts {
            renewed: self.counts.renewed.load(Ordering::Relaxed),
            lost: self.counts.lost.load(Ordering::Relaxed),
        }
    }

    /// All holds are given back; their guards learn of it. Returns when that is done, as far as it can be.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        self.closing.closed().await;
    }
}

fn patience(ttl: Duration) -> Duration {
    (ttl / 4).clamp(PATIENCE_MIN, PATIENCE_MAX)
}

fn client(url: &str) -> Result<redis::Client, InvalidServers> {
    redis::Client::open(url).map_err(|error| InvalidServers(error.to_string()))
}

fn check_servers(clients: &[redis::Client]) -> Result<(), InvalidServers> {
    let count = clients.len();
    if !(REDLOCK_SERVERS_MIN..=REDLOCK_SERVERS_MAX).contains(&count) {
        return Err(InvalidServers(format!(
            "Redlock takes {REDLOCK_SERVERS_MIN} to {REDLOCK_SERVERS_MAX} Redis, and {count} were given"
        )));
    }
    let addresses = clients.iter().map(|client| client.get_connection_info().addr().to_string());
    let mut addresses: Vec<String> = addresses.collect();
    addresses.sort_unstable();
    match addresses.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(InvalidServers(format!(
            "{} is given twice: the Redis of a Redlock are independent of each other",
            pair[0]
        ))),
        None => Ok(()),
    }
}

impl HeldLock {
    pub async fn renew(&self, ttl: Option<Duration>) -> Result<(), RenewError> {
        self.hold.check()?;
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Renew { ttl, reply }).await;
        answer.await.unwrap_or_else(|_| Err(self.closed().into()))
    }

    /// The release is on its way before the future is first polled.
    pub fn start_release(self) -> impl Future<Output = Result<ReleaseOutcome, StoreDown>> {
        let (reply, answer) = oneshot::channel();
        // Renewals take the guard by reference and wait for their answers, so there is room; if there were
        // none, the keeper would see the guard go and release all the same.
        let sent = self.commands.try_send(Command::Release { reply });
        async move {
            match (sent, answer.await) {
                (Ok(()), Ok(outcome)) => outcome,
                // The client is closed, and its end freed the lock.
                _ => Ok(ReleaseOutcome::Expired),
            }
        }
    }

    fn closed(&self) -> Lost {
        self.hold.check().err().unwrap_or(Lost { reason: LossReason::SessionClosed })
    }
}
