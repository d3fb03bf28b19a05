//! Which backend is asked for a lock of the efficiency tier, and what is done when that is down.

#[cfg(feature = "redis")]
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::Guarantee;
#[cfg(feature = "redis")]
use holdfast_redis_locks::{InvalidServers, NotGranted, RedisLocks};

use super::counts::Counts;
use super::{
    Efficiency, EfficiencyCounts, EfficiencyStatus, GuaranteeRequired, InvalidEfficiency,
    Requirements, ServedBy, WhenDown,
};
use crate::circuit::Circuit;
use crate::error::{AcquireError, NotInThisTier};
use crate::guard::Guard;
use crate::lock::LockRequest;
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
    counts: Counts,
    #[cfg(feature = "redis")]
    external_store: Option<ExternalStore>,
}

/// Where locks are kept outside of the cluster.
#[cfg(feature = "redis")]
#[derive(Debug)]
struct ExternalStore {
    served_by: ServedBy,
    locks: Arc<RedisLocks>,
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

    /// Of the efficiency tier, for a request that asks for it.
    pub(crate) async fn acquire(&self, mut request: LockRequest) -> Result<Guard, AcquireError> {
        self.check(request.name())?;
        let asked_at = tokio::time::Instant::now();
        let failure = match self.ask(&mut request).await {
            Ok(guard) => {
                self.counts.granted();
                return Ok(guard);
            }
            Err(error) => error,
        };
        match &failure {
            AcquireError::Unavailable(_) | AcquireError::EfficiencyDown(_) => self.counts.down(),
            AcquireError::Busy | AcquireError::TimedOut => {
                self.counts.busy();
                return Err(failure);
            }
            _ => return Err(failure),
        }
        match self.requirements.policy(request.name(), self.when_down) {
            WhenDown::Fail => Err(failure),
            WhenDown::GoWithout => {
                self.counts.went_without();
                tracing::warn!(lock = request.name(), "goes without a lock: {failure}");
                Ok(Guard::without(request.name().to_owned()))
            }
            WhenDown::FallBack => {
                self.counts.fell_back();
                tracing::warn!(lock = request.name(), "asks the correctness tier: {failure}");
                request.fall_back(asked_at.elapsed()).await
            }
        }
    }

    async fn ask(&self, request: &mut LockRequest) -> Result<Guard, AcquireError> {
        #[cfg(feature = "redis")]
        if let Some(store) = &self.external_store {
            let wanted = request.for_external_store(store.served_by)?;
            return match store.locks.acquire(&wanted).await {
                Ok(held) => Ok(Guard::in_external_store(held, store.served_by)),
                Err(NotGranted::Busy) => Err(AcquireError::Busy),
                Err(NotGranted::TimedOut) => Err(AcquireError::TimedOut),
                Err(NotGranted::Closed) => Err(AcquireError::Closed),
                Err(NotGranted::Down(down)) => Err(AcquireError::EfficiencyDown(down.into())),
            };
        }
        request.ask_cluster().await
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
