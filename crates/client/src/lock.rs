//! Asking for a lock: `client.lock(name).wait(..).acquire().await`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::session::Request;
use holdfast_client_core::tier::Tier;
use holdfast_client_core::wire_time::whole_ms;
use holdfast_proto::v1::{AcquireRequest, Mode};
#[cfg(feature = "redis")]
use holdfast_redis_locks as redis_locks;

use crate::acquire_call::{CurrentSpan, acquire};
use crate::efficiency::Route;
#[cfg(feature = "redis")]
use crate::efficiency::ServedBy;
use crate::error::AcquireError;
#[cfg(feature = "redis")]
use crate::error::NotInThisTier;
use crate::guard::Guard;
#[cfg(feature = "redis")]
use crate::limits::check_whole_name;
use crate::session::{Handle, OnQueued};
#[cfg(feature = "redis")]
use crate::terms::Policy;
use crate::terms::{Terms, setters_of_terms};

/// A lock that is about to be asked for.
#[must_use = "nothing is asked for until acquire() is awaited"]
pub struct LockRequest {
    handle: Handle,
    /// `None` if the cluster is asked in any case.
    route: Option<Arc<Route>>,
    name: String,
    mode: Mode,
    permits: u32,
    reentrant: bool,
    terms: Terms,
    on_queued: Option<OnQueued>,
    current_span: Option<CurrentSpan>,
}

impl LockRequest {
    pub(crate) fn new(handle: Handle, name: String) -> LockRequest {
        LockRequest {
            handle,
            route: None,
            name,
            mode: Mode::Exclusive,
            permits: 0,
            reentrant: false,
            terms: Terms::default(),
            on_queued: None,
            current_span: None,
        }
    }

    pub(crate) fn within(mut self, current: &Option<CurrentSpan>) -> LockRequest {
        self.current_span.clone_from(current);
        self
    }

    /// By which the efficiency tier is asked.
    pub(crate) fn by(mut self, route: &Arc<Route>) -> LockRequest {
        self.route = Some(Arc::clone(route));
        self
    }

    /// Together with other shared holders, who have one token as long as one of them holds.
    pub fn shared(mut self) -> LockRequest {
        self.mode = Mode::Shared;
        self
    }

    /// One of so many permits. Everybody who uses the semaphore states the same number; 0 stands for
    /// the number that an operator has set. A permit is not fenceable: its token only names the hold.
    pub fn permits(mut self, permits: u32) -> LockRequest {
        self.mode = Mode::Permit;
        self.permits = permits;
        self
    }

    /// If this actor holds the lock already, count one more instead of waiting for itself. Each guard
    /// is released on its own, and the last one frees the lock.
    pub fn reentrant(mut self) -> LockRequest {
        self.reentrant = true;
        self
    }

    setters_of_terms!();

    /// Returns the held lock. Dropping the future gives up the place in the queue, and releases the
    /// lock if it was granted in the meantime.
    pub async fn acquire(mut self) -> Result<Guard, AcquireError> {
        match (self.terms.tier, self.route.take()) {
            // By itself, so that whoever asks the cluster does not carry the room for it.
            (Tier::Efficiency, Some(route)) => Box::pin(route.acquire(self)).await,
            _ => self.ask_cluster().await,
        }
    }

    /// Asks the cluster, in the tier that is asked for.
    pub(crate) async fn ask_cluster(&mut self) -> Result<Guard, AcquireError> {
        let terms = &self.terms;
        let request = AcquireRequest {
            name: self.name.clone(),
            mode: self.mode.into(),
            wait_ms: whole_ms(terms.wait),
            ttl_ms: terms.ttl.map(whole_ms),
            max_hold_ms: terms.max_hold.map(whole_ms),
            actor: terms.actor(),
            metadata: terms.metadata.clone(),
            permits: self.permits,
            policy: terms.policy.to_wire().into(),
            since_ms: terms.since.map(|since| since.0),
            preemptible: terms.preemptible,
            reentrant: self.reentrant,
            lock_delay_ms: terms.lock_delay.map(whole_ms),
            tier: terms.tier.to_wire().into(),
            traceparent: terms.traceparent.clone(),
            ..Default::default()
        };
        let (request, on_queued) = (Request::Acquire(request), self.on_queued.take());
        let current = self.current_span.as_ref();
        let guards = acquire(&self.handle, request, terms.wait, on_queued, current).await?;
        guards.into_iter().next().ok_or(AcquireError::Closed)
    }

    /// Asks the correctness tier, for what is left of the wait.
    pub(crate) async fn fall_back(mut self, waited: Duration) -> Result<Guard, AcquireError> {
        self.terms.tier = Tier::Correctness;
        self.terms.wait = self.terms.wait.saturating_sub(waited);
        self.ask_cluster().await
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// As it can be asked of a store outside of the cluster.
    #[cfg(feature = "redis")]
    pub(crate) fn for_external_store(
        &self,
        served_by: ServedBy,
    ) -> Result<redis_locks::Request, AcquireError> {
        check_whole_name(&self.name).map_err(AcquireError::Rejected)?;
        if let Some(what) = self.beyond_external_store() {
            return Err(NotInThisTier { what, served_by }.into());
        }
        let Terms { wait, ttl, max_hold, .. } = self.terms;
        Ok(redis_locks::Request { name: self.name.clone(), wait, own_ttl: ttl, max_hold })
    }

    /// What it asks for that only the cluster can do.
    #[cfg(feature = "redis")]
    fn beyond_external_store(&self) -> Option<&'static str> {
        let terms = &self.terms;
        let has_age = terms.since.is_some()
            || terms.preemptible
            || matches!(terms.policy, Policy::WaitDie | Policy::WoundWait);
        let asked_for = [
            (self.mode == Mode::Shared, "a shared lock"),
            (self.mode == Mode::Permit, "a semaphore"),
            (self.reentrant, "re-entry"),
            (terms.lock_delay.is_some(), "a lock delay"),
            (!terms.metadata.is_empty(), "metadata"),
            (has_age, "an order by age"),
        ];
        asked_for.into_iter().find(|(is_asked_for, _)| *is_asked_for).map(|(_, what)| what)
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
