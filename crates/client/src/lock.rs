//! Asking for a lock: `client.lock(name).wait(..).acquire().await`.

mod best_effort;

use std::fmt;
use std::sync::Arc;

use holdfast_client_core::session::Request;
use holdfast_client_core::tier::Tier;
use holdfast_client_core::wire_time::whole_ms;
use holdfast_proto::v1::{AcquireRequest, Mode};

use crate::acquire_call::{CurrentSpan, acquire};
use crate::efficiency::Route;
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::lock_options::{LockOptions, lock_option_setters};
use crate::session::{OnQueued, Sessions};

/// A lock that is about to be asked for.
#[must_use = "nothing is asked for until acquire() is awaited"]
pub struct LockRequest {
    sessions: Sessions,
    /// `None` if the cluster is asked in any case.
    route: Option<Arc<Route>>,
    name: String,
    mode: Mode,
    permits: u32,
    reentrant: bool,
    options: LockOptions,
    on_queued: Option<OnQueued>,
    current_span: Option<CurrentSpan>,
}

impl LockRequest {
    pub(crate) fn new(sessions: Sessions, name: String) -> LockRequest {
        LockRequest {
            sessions,
            route: None,
            name,
            mode: Mode::Exclusive,
            permits: 0,
            reentrant: false,
            options: LockOptions::default(),
            on_queued: None,
            current_span: None,
        }
    }

    pub(crate) fn within(mut self, current: &Option<CurrentSpan>) -> LockRequest {
        self.current_span.clone_from(current);
        self
    }

    /// How the efficiency tier is reached.
    pub(crate) fn by(mut self, route: &Arc<Route>) -> LockRequest {
        self.route = Some(Arc::clone(route));
        self
    }

    /// Together with other shared holders, who have one token as long as one of them holds.
    pub fn shared(mut self) -> LockRequest {
        self.mode = Mode::Shared;
        self
    }

    /// One permit of a semaphore that has this many. All clients of the semaphore state the same number; 0 stands for
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

    lock_option_setters!();

    /// Returns the held lock. Dropping the future gives up the place in the queue, and releases the
    /// lock if it was granted in the meantime.
    pub async fn acquire(mut self) -> Result<Guard, AcquireError> {
        match (self.options.tier, self.route.take()) {
            // Boxed, so that the future of the correctness tier does not carry the room for it.
            (Tier::Efficiency, Some(route)) => Box::pin(self.acquire_best_effort(&route)).await,
            _ => self.ask_cluster().await,
        }
    }

    /// Asks the cluster, in the tier that is asked for.
    async fn ask_cluster(&mut self) -> Result<Guard, AcquireError> {
        let options = &self.options;
        let request = AcquireRequest {
            name: self.name.clone(),
            mode: self.mode.into(),
            wait_ms: whole_ms(options.wait),
            ttl_ms: options.ttl.map(whole_ms),
            max_hold_ms: options.max_hold.map(whole_ms),
            actor: options.actor(),
            metadata: options.metadata.clone(),
            permits: self.permits,
            policy: options.policy.to_wire().into(),
            since_ms: options.since.map(|since| since.0),
            preemptible: options.preemptible,
            reentrant: self.reentrant,
            lock_delay_ms: options.lock_delay.map(whole_ms),
            tier: options.tier.to_wire().into(),
            traceparent: options.traceparent.clone(),
            ..Default::default()
        };
        let (request, on_queued) = (Request::Acquire(request), self.on_queued.take());
        let current = self.current_span.as_ref();
        let guards = acquire(&self.sessions, request, options.wait, on_queued, current).await?;
        guards.into_iter().next().ok_or(AcquireError::Closed)
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
