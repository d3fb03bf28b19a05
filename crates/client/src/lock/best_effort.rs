//! A lock of the efficiency tier: which backend is asked, and what is done when that is down.

use std::time::Duration;

use holdfast_client_core::tier::Tier;
#[cfg(feature = "redis")]
use holdfast_proto::v1::Mode;
#[cfg(feature = "redis")]
use holdfast_redis_locks::{self as redis_locks, NotGranted};

use super::LockRequest;
#[cfg(feature = "redis")]
use crate::efficiency::ServedBy;
use crate::efficiency::{Route, WhenDown};
use crate::error::AcquireError;
#[cfg(feature = "redis")]
use crate::error::NotInThisTier;
use crate::guard::Guard;
#[cfg(feature = "redis")]
use crate::limits::check_whole_name;
#[cfg(feature = "redis")]
use crate::lock_options::{LockOptions, Policy};

impl LockRequest {
    /// Asks the efficiency tier. If that is down, does what the client was told to do then.
    pub(super) async fn acquire_best_effort(
        mut self,
        route: &Route,
    ) -> Result<Guard, AcquireError> {
        route.check(&self.name)?;
        let asked_at = tokio::time::Instant::now();
        let failure = match self.ask_best_effort(route).await {
            Ok(guard) => {
                route.counts.granted();
                return Ok(guard);
            }
            Err(error) => error,
        };
        match &failure {
            AcquireError::Unavailable(_) | AcquireError::EfficiencyDown(_) => route.counts.down(),
            AcquireError::Busy | AcquireError::TimedOut => {
                route.counts.busy();
                return Err(failure);
            }
            _ => return Err(failure),
        }
        match route.when_down(&self.name) {
            WhenDown::Fail => Err(failure),
            WhenDown::GoWithout => {
                route.counts.went_without();
                tracing::warn!(lock = self.name, "goes without a lock: {failure}");
                Ok(Guard::without(self.name.clone()))
            }
            WhenDown::FallBack => {
                route.counts.fell_back();
                tracing::warn!(lock = self.name, "asks the correctness tier: {failure}");
                self.fall_back(asked_at.elapsed()).await
            }
        }
    }

    #[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "the cluster serves it"))]
    async fn ask_best_effort(&mut self, route: &Route) -> Result<Guard, AcquireError> {
        #[cfg(feature = "redis")]
        if let Some(store) = &route.external_store {
            let wanted = self.for_external_store(store.served_by)?;
            return match store.locks.acquire(&wanted).await {
                Ok(held) => Ok(Guard::in_external_store(held, store.served_by)),
                Err(NotGranted::Busy) => Err(AcquireError::Busy),
                Err(NotGranted::TimedOut) => Err(AcquireError::TimedOut),
                Err(NotGranted::Closed) => Err(AcquireError::Closed),
                Err(NotGranted::Down(down)) => Err(AcquireError::EfficiencyDown(down.into())),
            };
        }
        self.ask_cluster().await
    }

    /// Asks the correctness tier, for what is left of the wait.
    async fn fall_back(mut self, waited: Duration) -> Result<Guard, AcquireError> {
        self.options.tier = Tier::Correctness;
        self.options.wait = self.options.wait.saturating_sub(waited);
        self.ask_cluster().await
    }

    /// As it can be asked of a store outside of the cluster.
    #[cfg(feature = "redis")]
    fn for_external_store(
        &self,
        served_by: ServedBy,
    ) -> Result<redis_locks::Request, AcquireError> {
        check_whole_name(&self.name).map_err(AcquireError::Rejected)?;
        if let Some(what) = self.beyond_external_store() {
            return Err(NotInThisTier { what, served_by }.into());
        }
        let LockOptions { wait, ttl, max_hold, .. } = self.options;
        Ok(redis_locks::Request { name: self.name.clone(), wait, own_ttl: ttl, max_hold })
    }

    /// What it asks for that only the cluster can do.
    #[cfg(feature = "redis")]
    fn beyond_external_store(&self) -> Option<&'static str> {
        let options = &self.options;
        let has_age = options.since.is_some()
            || options.preemptible
            || matches!(options.policy, Policy::WaitDie | Policy::WoundWait);
        let asked_for = [
            (self.mode == Mode::Shared, "a shared lock"),
            (self.mode == Mode::Permit, "a semaphore"),
            (self.reentrant, "re-entry"),
            (options.lock_delay.is_some(), "a lock delay"),
            (!options.metadata.is_empty(), "metadata"),
            (has_age, "an order by age"),
        ];
        asked_for.into_iter().find(|(is_asked_for, _)| *is_asked_for).map(|(_, what)| what)
    }
}
