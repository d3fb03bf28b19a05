//! Locks that are kept outside of the cluster, in Redis.
//!
//! - [`store`]: what is asked of a store, and [`redis`]: the stores.
//! - [`asking`]: trying, and waiting for the next try.
//! - [`hold`] and [`keeper`]: what is held, and the task that looks after it.
//! - [`listening`], [`health`], [`jitter`]: what they need for it.
//!
//! There is no queue: of those who wait, whoever asks first after a release has the lock.

mod asking;
mod health;
mod hold;
mod jitter;
mod keeper;
mod listening;
mod redis;
mod store;

use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::error::{LossReason, Lost};
use holdfast_client_core::hold::ReleaseOutcome;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::counts::Counts;
use super::{Efficiency, InvalidEfficiency, ServedBy};
use crate::circuit::Circuit;
use crate::error::{ReleaseError, RenewError};
use keeper::Command;
use redis::{OneRedis, Redlock};
use store::Store;

pub(crate) use asking::{NotGranted, Request};
pub(crate) use hold::Hold;

/// How long a server may take to answer: a part of the TTL, within these.
const PATIENCE_MIN: Duration = Duration::from_millis(200);
const PATIENCE_MAX: Duration = Duration::from_millis(500);

/// Calls that are under way at a time; more wait for their turn.
const CALLS_MAX: usize = 100_000;

const REDLOCK_SERVERS_MIN: usize = 3;
const REDLOCK_SERVERS_MAX: usize = 15;

/// The locks of one client that are kept outside.
#[derive(Debug)]
pub(crate) struct Outside {
    store: Arc<dyn Store>,
    /// Of a hold that was asked for without one of its own.
    ttl: Duration,
    closing: watch::Sender<bool>,
    places: Semaphore,
    counts: Arc<Counts>,
}

/// A guard's part of a hold. When it is gone the keeper releases.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) hold: Arc<Hold>,
    commands: mpsc::Sender<Command>,
}

impl Outside {
    /// `None` if the locks are the cluster's.
    pub(crate) fn open(
        config: &Efficiency,
        ttl: Duration,
        counts: &Arc<Counts>,
    ) -> Result<Option<Arc<Outside>>, InvalidEfficiency> {
        let patience = (ttl / 4).clamp(PATIENCE_MIN, PATIENCE_MAX);
        let store: Arc<dyn Store> = match config {
            Efficiency::Embedded => return Ok(None),
            Efficiency::Redis { url } => Arc::new(OneRedis::new(client(url)?, patience)),
            Efficiency::Redlock { urls } => {
                let clients = urls.iter().map(|url| client(url)).collect::<Result<Vec<_>, _>>()?;
                check_servers(&clients)?;
                Arc::new(Redlock::new(clients, patience))
            }
        };
        let (closing, places) = (watch::Sender::new(false), Semaphore::new(CALLS_MAX));
        Ok(Some(Arc::new(Outside { store, ttl, closing, places, counts: Arc::clone(counts) })))
    }

    pub(crate) fn served_by(&self) -> ServedBy {
        self.store.served_by()
    }

    pub(crate) fn circuit(&self) -> Circuit {
        self.store.circuit()
    }

    /// All holds are given back; their guards learn of it. Returns when that is done, as far as it can be.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        self.closing.closed().await;
    }
}

fn client(url: &str) -> Result<::redis::Client, InvalidEfficiency> {
    ::redis::Client::open(url).map_err(|error| InvalidEfficiency(error.to_string()))
}

fn check_servers(clients: &[::redis::Client]) -> Result<(), InvalidEfficiency> {
    let count = clients.len();
    if !(REDLOCK_SERVERS_MIN..=REDLOCK_SERVERS_MAX).contains(&count) {
        return Err(InvalidEfficiency(format!(
            "Redlock takes {REDLOCK_SERVERS_MIN} to {REDLOCK_SERVERS_MAX} Redis, and {count} were given"
        )));
    }
    let addresses = clients.iter().map(|client| client.get_connection_info().addr().to_string());
    let mut addresses: Vec<String> = addresses.collect();
    addresses.sort_unstable();
    match addresses.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(InvalidEfficiency(format!(
            "{} is given twice: the Redis of a Redlock are independent of each other",
            pair[0]
        ))),
        None => Ok(()),
    }
}

impl Kept {
    pub(crate) async fn renew(&self, ttl: Option<Duration>) -> Result<(), RenewError> {
        self.hold.check()?;
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Renew { ttl, reply }).await;
        answer.await.unwrap_or_else(|_| Err(self.closed().into()))
    }

    /// The release is on its way before the future is first polled.
    pub(crate) fn start_release(
        self,
    ) -> impl Future<Output = Result<ReleaseOutcome, ReleaseError>> {
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
