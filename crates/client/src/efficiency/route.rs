//! Which backend is asked for a lock of the efficiency tier, and what is done when that is down.

#[cfg(feature = "redis")]
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::Guarantee;
#[cfg(feature = "redis")]
use holdfast_redis_locks::{InvalidServers, RedisLocks};

use super::counts::Counts;
use super::{Efficiency, EfficiencyCounts, EfficiencyStatus, Requirements, ServedBy, WhenDown};
use crate::circuit::Circuit;
use crate::error::{GuaranteeRequired, InvalidEfficiency};
use crate::served_by::NotInThisTier;
use crate::session::Handle;

/// How the efficiency tier of a client is to be used.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) backend: Efficiency,
    pub(crate) when_down: WhenDown,
    pub(crate) requirements: Requirements,
}

/// The efficiency tier of one client.
#[derive(Debug)]
pub(crate) struct Route {
    when_down: WhenDown,
    requirements: Requirements,
    pub(crate) counts: Counts,
    #[cfg(feature = "redis")]
    pub(crate) external_store: Option<ExternalStore>,
}

/// Where locks are kept outside of the cluster.
#[cfg(feature = "redis")]
#[derive(Debug)]
pub(crate) struct ExternalStore {
    pub(crate) served_by: ServedBy,
    pub(crate) locks: Arc<RedisLocks>,
}

#[cfg(feature = "redis")]
impl ExternalStore {
    /// `None` if the locks are the cluster's.
    fn open(backend: &Efficiency, ttl: Duration) -> Result<Option<ExternalStore>, InvalidServers> {
        let (served_by, locks) = match backend {
            Efficiency::Embedded => return Ok(None),
            Efficiency::Redis { url } => (ServedBy::Redis, RedisLocks::in_one(url, ttl)?),
            Efficiency::Redlock { urls } => {
                (ServedBy::Redlock, RedisLocks::in_majority(urls, ttl)?)
            }
        };
        Ok(Some(ExternalStore { served_by, locks }))
    }
}

impl Route {
    /// Nothing is connected yet.
    pub(crate) fn open(settings: Settings, ttl: Duration) -> Result<Route, InvalidEfficiency> {
        let Settings { backend, when_down, requirements } = settings;
        let counts = Counts::default();
        #[cfg(feature = "redis")]
        let external_store = ExternalStore::open(&backend, ttl)
            .map_err(|InvalidServers(words)| InvalidEfficiency(words))?;
        #[cfg(not(feature = "redis"))]
        let (Efficiency::Embedded, _) = (backend, ttl);
        Ok(Route {
            when_down,
            requirements,
            counts,
            #[cfg(feature = "redis")]
            external_store,
        })
    }

    /// What is done when the tier is down and a lock of this name is asked for.
    pub(crate) fn when_down(&self, name: &str) -> WhenDown {
        self.requirements.policy(name, self.when_down)
    }

    /// Whether the efficiency tier may be used for the name.
    pub(crate) fn check(&self, name: &str) -> Result<(), GuaranteeRequired> {
        let checked = self.requirements.check(name, Guarantee::BestEffort);
        if checked.is_err() {
            self.counts.refused();
        }
        checked
    }

    /// What only the cluster can do.
    pub(crate) fn check_is_embedded(&self, what: &'static str) -> Result<(), NotInThisTier> {
        match self.backend() {
            ServedBy::Embedded => Ok(()),
            served_by => Err(NotInThisTier { what, served_by }),
        }
    }

    pub(crate) fn status(&self, handle: &Handle) -> EfficiencyStatus {
        EfficiencyStatus {
            backend: self.backend(),
            circuit: self.circuit(handle).state(),
            counts: self.counts(),
        }
    }

    fn counts(&self) -> EfficiencyCounts {
        let counts = self.counts.read();
        #[cfg(feature = "redis")]
        if let Some(store) = &self.external_store {
            let stored = store.locks.counts();
            return EfficiencyCounts { renewed: stored.renewed, lost: stored.lost, ..counts };
        }
        counts
    }

    /// The embedded tier is up when the cluster is.
    pub(crate) fn circuit(&self, handle: &Handle) -> Circuit {
        #[cfg(feature = "redis")]
        if let Some(store) = &self.external_store {
            return Circuit(store.locks.circuit());
        }
        handle.circuit()
    }

    fn backend(&self) -> ServedBy {
        #[cfg(feature = "redis")]
        if let Some(store) = &self.external_store {
            return store.served_by;
        }
        ServedBy::Embedded
    }

    /// Gives back what is held outside of the cluster.
    pub(crate) async fn close(&self) {
        #[cfg(feature = "redis")]
        if let Some(store) = &self.external_store {
            store.locks.close().await;
        }
    }
}
