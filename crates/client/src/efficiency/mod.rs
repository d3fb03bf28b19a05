//! The efficiency tier: locks for where duplicate work is a waste and no damage.
//!
//! - [`route`]: which backend serves a request, and what is done when it is down.
//! - [`requirement`]: where the weaker tier is refused.
//! - [`counts`]: counts of how calls ended.
//!
//! The backends that are not the cluster itself are in the crate `holdfast-redis-locks`.
//!
//! The embedded backend is an ordinary acquire of the session that says which tier it means: its waits, its lease
//! and its release are the session's. It needs nothing here but the policy.

mod counts;
mod requirement;
mod route;

use std::fmt;

pub use crate::served_by::ServedBy;
pub use counts::EfficiencyCounts;

pub(crate) use requirement::Requirements;
pub(crate) use route::{Route, Settings};

use holdfast_client_core::circuit::CircuitState;

/// What serves the efficiency tier. All of those who use a lock have to use the same.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Efficiency {
    /// The memory of the cluster's leader.
    #[default]
    Embedded,
    /// One Redis: `redis://[user:password@]host:port[/database]`.
    #[cfg(feature = "redis")]
    Redis { url: String },
    /// Several Redis that know nothing of each other: a majority of them has to grant.
    #[cfg(feature = "redis")]
    Redlock { urls: Vec<String> },
}

/// What to do when the efficiency tier is down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenDown {
    /// [`AcquireError::EfficiencyDown`](crate::AcquireError::EfficiencyDown).
    #[default]
    Fail,
    /// Work is done without a lock. The guard says so: [`Guard::guarantee`](crate::Guard::guarantee) is
    /// `None`, and there is no token.
    GoWithout,
    /// The correctness tier is asked. The guard says so: its guarantee is
    /// [`Linearizable`](crate::Guarantee::Linearizable). Its tokens are of another kind: a resource that takes
    /// best-effort tokens refuses them. And it knows nothing of who holds the lock in the efficiency tier at that
    /// moment.
    FallBack,
}

/// How the efficiency tier of a client is doing; see [`Client::efficiency`](crate::Client::efficiency).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EfficiencyStatus {
    pub backend: ServedBy,
    /// While it is not closed, calls fail at once, or the policy applies at once.
    pub circuit: CircuitState,
    pub counts: EfficiencyCounts,
}

impl Efficiency {
    /// One URL stands for one Redis, several with commas between them for a Redlock.
    #[cfg(feature = "redis")]
    pub fn redis(urls: &str) -> Efficiency {
        let urls: Vec<String> = urls.split(',').map(|url| url.trim().to_owned()).collect();
        match <[String; 1]>::try_from(urls) {
            Ok([url]) => Efficiency::Redis { url },
            Err(urls) => Efficiency::Redlock { urls },
        }
    }
}

impl fmt::Debug for Efficiency {
    /// The URLs may have passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Efficiency::Embedded => f.write_str("Embedded"),
            #[cfg(feature = "redis")]
            Efficiency::Redis { .. } => f.debug_struct("Redis").finish_non_exhaustive(),
            #[cfg(feature = "redis")]
            Efficiency::Redlock { urls } => {
                f.debug_struct("Redlock").field("count", &urls.len()).finish_non_exhaustive()
            }
        }
    }
}
