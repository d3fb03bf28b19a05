//! Asking for several locks at once: `client.lock_all(["a", "b"]).wait(..).acquire().await`.

use std::fmt;
use std::sync::Arc;

use holdfast_client_core::session::Request;
use holdfast_client_core::tier::Tier;
use holdfast_client_core::wire_time::whole_ms;
use holdfast_proto::v1;
use holdfast_proto::v1::{AcquireAllRequest, Mode};

use crate::acquire_call::{CurrentSpan, acquire};
use crate::efficiency::Route;
use crate::error::AcquireError;
use crate::guard_all::GuardAll;
use crate::session::{Handle, OnQueued};
use crate::terms::{Terms, setters_of_terms};

/// One of the locks, and how it is to be held. A bare name is exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    name: String,
    mode: Mode,
    permits: u32,
}

impl Member {
    pub fn exclusive(name: impl Into<String>) -> Member {
        Member { name: name.into(), mode: Mode::Exclusive, permits: 0 }
    }

    pub fn shared(name: impl Into<String>) -> Member {
        Member { name: name.into(), mode: Mode::Shared, permits: 0 }
    }

    /// One of so many permits; see [`LockRequest::permits`](crate::LockRequest::permits).
    pub fn permit(name: impl Into<String>, permits: u32) -> Member {
        Member { name: name.into(), mode: Mode::Permit, permits }
    }
}

impl From<&str> for Member {
    fn from(name: &str) -> Member {
        Member::exclusive(name)
    }
}

impl From<String> for Member {
    fn from(name: String) -> Member {
        Member::exclusive(name)
    }
}

impl From<&String> for Member {
    fn from(name: &String) -> Member {
        Member::exclusive(name)
    }
}

/// Locks that are about to be asked for: all of them at one moment, or none.
#[must_use = "nothing is asked for until acquire() is awaited"]
pub struct LockAllRequest {
    handle: Handle,
    route: Arc<Route>,
    members: Vec<Member>,
    terms: Terms,
    on_queued: Option<OnQueued>,
    current_span: Option<CurrentSpan>,
}

impl LockAllRequest {
    pub(crate) fn new(
        handle: Handle,
        route: Arc<Route>,
        members: Vec<Member>,
        current_span: Option<CurrentSpan>,
    ) -> LockAllRequest {
        let (terms, on_queued) = (Terms::default(), None);
        LockAllRequest { handle, route, members, terms, on_queued, current_span }
    }

    setters_of_terms!();

    /// Returns the held locks. Dropping the future gives up the places in the queues, and releases the
    /// locks if they were granted in the meantime.
    pub async fn acquire(self) -> Result<GuardAll, AcquireError> {
        let LockAllRequest { handle, route, members, terms, on_queued, current_span } = self;
        if terms.tier == Tier::Efficiency {
            route.check_is_embedded("several locks at one moment")?;
            members.iter().try_for_each(|member| route.check(&member.name))?;
        }
        let actor = terms.actor();
        let to_wire =
            |Member { name, mode, permits }| v1::Member { name, mode: mode.into(), permits };
        let request = AcquireAllRequest {
            members: members.into_iter().map(to_wire).collect(),
            wait_ms: whole_ms(terms.wait),
            ttl_ms: terms.ttl.map(whole_ms),
            max_hold_ms: terms.max_hold.map(whole_ms),
            actor,
            metadata: terms.metadata,
            policy: terms.policy.to_wire().into(),
            since_ms: terms.since.map(|since| since.0),
            preemptible: terms.preemptible,
            lock_delay_ms: terms.lock_delay.map(whole_ms),
            tier: terms.tier.to_wire().into(),
            traceparent: terms.traceparent,
            ..Default::default()
        };
        let (request, current) = (Request::AcquireAll(request), current_span.as_ref());
        let guards = acquire(&handle, request, terms.wait, on_queued, current).await?;
        Ok(GuardAll::new(guards))
    }
}

impl fmt::Debug for LockAllRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockAllRequest")
            .field("members", &self.members)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
