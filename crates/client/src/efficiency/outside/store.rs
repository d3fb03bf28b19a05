//! What keeps locks outside of the cluster, seen from those who wait for locks and hold them.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;

use super::listening::Listening;
use crate::circuit::Circuit;
use crate::efficiency::ServedBy;
use crate::error::EfficiencyDown;

pub(crate) type Answer<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, EfficiencyDown>> + Send + 'a>>;

/// A hold, or one that may come of a try. Whatever is done to a lock is done on condition that its value is this
/// owner's, so nobody can touch what is somebody else's.
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
    /// Somebody else has it, for so long if that is known, unless it is extended or released.
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

    fn served_by(&self) -> ServedBy;

    fn circuit(&self) -> Circuit;

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
