//! What keeps the locks, seen from those who wait for locks and hold them.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use holdfast_client_core::circuit::CircuitState;
use tokio::sync::watch;

use crate::listening::Listening;

/// The servers are of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StoreDown {
    /// Which servers were tried, and what came of it.
    pub message: String,
    pub may_have_happened: bool,
}

pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreDown>> + Send + 'a>>;

/// A hold, or one that may come of a try. Whatever is done to a lock is done on condition that its value is this
/// owner's, so no caller can touch what is another's.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) name: String,
    /// No two tries have the same.
    pub(crate) owner: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    Granted {
        token: u64,
    },
    /// Another owner has it, for so long if that is known, unless it is extended or released.
    Busy {
        free_in: Option<Duration>,
    },
}

/// One Redis, or several of them. A store is asked once and answers; to wait, to try again and to extend in
/// time is done by those who ask.
///
/// - No method takes longer than the store's own patience with its servers.
/// - A try that was not granted leaves nothing behind, unless it fails with `may_have_happened`: then the claim
///   has to be released.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    fn acquire<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Answer<'a, Attempt>;

    /// False if the lock is no longer the claim's.
    fn extend<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Answer<'a, bool>;

    /// False if the lock was no longer the claim's.
    fn release<'a>(&'a self, claim: &'a Claim) -> Answer<'a, bool>;

    /// News of releases, until it is dropped. `None` if this store has none to give.
    fn listen(&self, name: &str) -> Option<Listening>;

    fn circuit(&self) -> watch::Receiver<CircuitState>;

    /// Changes when servers that were gone are back. They may have forgotten what they had.
    fn returns(&self) -> watch::Receiver<u64>;
}

impl Claim {
    /// `None` if the system has no randomness to give.
    pub(crate) fn new(name: &str) -> Option<Claim> {
        let mut owner = [0; 16];
        getrandom::fill(&mut owner).ok()?;
        let owner = format!("{:032x}", u128::from_be_bytes(owner));
        Some(Claim { name: name.to_owned(), owner })
    }
}

impl StoreDown {
    pub(crate) fn circuit_open() -> StoreDown {
        let message = "it has been of no use for a while, and is being tried".to_owned();
        StoreDown { message, may_have_happened: false }
    }

    pub(crate) fn no_randomness() -> StoreDown {
        let message = "the operating system gives no random numbers for an owner".to_owned();
        StoreDown { message, may_have_happened: false }
    }

    /// The one who asked was not there to the end.
    pub(crate) fn unexplained() -> StoreDown {
        let message = "it was not asked to the end".to_owned();
        StoreDown { message, may_have_happened: true }
    }
}
