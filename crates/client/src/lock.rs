//! Asking for a lock: `client.lock(name).wait(..).acquire().await`.

use std::fmt;

use holdfast_proto::v1::{AcquireRequest, Mode};

use crate::asking::ask;
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::session::{Handle, Wanted, whole_ms};
use crate::terms::{Terms, setters_of_terms};

/// A lock that is about to be asked for.
#[must_use = "nothing is asked for until acquire() is awaited"]
pub struct LockRequest {
    handle: Handle,
    name: String,
    mode: Mode,
    permits: u32,
    reentrant: bool,
    terms: Terms,
    on_queued: Option<Box<dyn FnOnce(u64) + Send>>,
}

impl LockRequest {
    pub(crate) fn new(handle: Handle, name: String) -> LockRequest {
        LockRequest {
            handle,
            name,
            mode: Mode::Exclusive,
            permits: 0,
            reentrant: false,
            terms: Terms::default(),
            on_queued: None,
        }
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
    pub async fn acquire(self) -> Result<Guard, AcquireError> {
        let LockRequest { handle, name, mode, permits, reentrant, terms, on_queued } = self;
        let actor = terms.actor();
        let request = AcquireRequest {
            name,
            mode: mode.into(),
            wait_ms: whole_ms(terms.wait),
            ttl_ms: terms.ttl.map(whole_ms),
            max_hold_ms: terms.max_hold.map(whole_ms),
            actor,
            metadata: terms.metadata,
            permits,
            policy: terms.policy.to_wire().into(),
            since_ms: terms.since.map(|since| since.0),
            preemptible: terms.preemptible,
            reentrant,
            lock_delay_ms: terms.lock_delay.map(whole_ms),
            tier: terms.tier.to_wire().into(),
            ..Default::default()
        };
        let mut guards = ask(&handle, Wanted::One(request), terms.wait, on_queued).await?;
        guards.pop().ok_or(AcquireError::Closed)
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
