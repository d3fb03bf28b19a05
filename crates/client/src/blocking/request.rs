//! Asking for locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_client_core::error::Since;
use holdfast_client_core::tier::Tier;

use super::block_on::Background;
use super::guard::{Guard, GuardAll};
use crate::error::AcquireError;
use crate::lock_options::Policy;

/// A lock that is about to be asked for; see [`crate::LockRequest`].
#[derive(Debug)]
#[must_use = "nothing is asked for until acquire() is called"]
pub struct LockRequest {
    request: crate::LockRequest,
    background: Arc<Background>,
}

/// Locks that are about to be asked for: all of them at one moment, or none; see [`crate::LockAllRequest`].
#[derive(Debug)]
#[must_use = "nothing is asked for until acquire() is called"]
pub struct LockAllRequest {
    request: crate::LockAllRequest,
    background: Arc<Background>,
}

/// The setters that both have, as they are in the request within.
macro_rules! setters_of_the_request {
    ($request:path) => {
        setters_of_the_request! { $request;
            wait(wait: Duration),
            ttl(ttl: Duration),
            max_hold(max_hold: Duration),
            lock_delay(lock_delay: Duration),
            metadata(metadata: impl Into<Vec<u8>>),
            actor(actor: u64),
            policy(policy: Policy),
            wait_die(),
            wound_wait(),
            no_detection(),
            since(since: impl Into<Option<Since>>),
            preemptible(),
            tier(tier: Tier),
            traceparent(traceparent: impl Into<String>),
            on_queued(on_queued: impl FnOnce(u64) + Send + 'static),
        }
    };
    ($request:path; $($name:ident($($argument:ident: $type:ty)?),)*) => {
        $(
            #[doc = concat!("As [`", stringify!($request), "::", stringify!($name), "`].")]
            pub fn $name(mut self, $($argument: $type)?) -> Self {
                self.request = self.request.$name($($argument)?);
                self
            }
        )*
    };
}

impl LockRequest {
    pub(super) fn new(request: crate::LockRequest, background: Arc<Background>) -> LockRequest {
        LockRequest { request: request.actor(this_thread()), background }
    }

    setters_of_the_request!(crate::LockRequest);
    setters_of_the_request! { crate::LockRequest;
        shared(),
        permits(permits: u32),
        reentrant(),
    }

    /// Returns the held lock. Without [`LockRequest::wait`] it is tried once.
    pub fn acquire(self) -> Result<Guard, AcquireError> {
        let guard = self.background.block_on(self.request.acquire())?;
        Ok(Guard::new(guard, self.background))
    }
}

impl LockAllRequest {
    pub(super) fn new(
        request: crate::LockAllRequest,
        background: Arc<Background>,
    ) -> LockAllRequest {
        LockAllRequest { request: request.actor(this_thread()), background }
    }

    setters_of_the_request!(crate::LockAllRequest);

    /// Returns the held locks.
    pub fn acquire(self) -> Result<GuardAll, AcquireError> {
        let guards = self.background.block_on(self.request.acquire())?;
        Ok(GuardAll::new(guards, self.background))
    }
}

/// A number of this thread's own, which no task of a runtime has.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_is_an_actor_and_stays_the_same_one() {
        let one = this_thread();
        assert_eq!(this_thread(), one);
        let other = std::thread::spawn(this_thread).join().unwrap();
        assert!(one != other && one >= 1 << 63);
    }
}
