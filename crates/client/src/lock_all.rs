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
use crate::lock_options::{LockOptions, lock_option_setters};
use crate::session::{OnQueued, Sessions};

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
    sessions: Sessions,
    route: Arc<Route>,
    members: Vec<Member>,
    options: LockOptions,
    on_queued: Option<OnQueued>,
    current_span: Option<CurrentSpan>,
}

impl LockAllRequest {
    pub(crate) fn new(
        sessions: Sessions,
        route: Arc<Route>,
        members: Vec<Member>,
        current_span: Option<CurrentSpan>,
    ) -> LockAllRequest {
        let (options, on_queued) = (LockOptions::default(), None);
        LockAllRequest { sessions, route, members, options, on_queued, current_span }
    }

    lock_option_setters!();

    /// Returns the held locks. Dropping the future gives up the places in the queues, and releases the
    /// locks if they were granted in the meantime.
    pub async fn acquire(self) -> Result<GuardAll, AcquireError> {
        let LockAllRequest { sessions, route, members, options, on_queued, current_span } = self;
        if options.tier == Tier::Efficiency {
            route.check_is_embedded("several locks at one moment")?;
            members.iter().try_for_each(|member| route.check(&member.name))?;
        }
        let actor = options.actor();
        let to_wire =
            |Member { name, mode, permits }| v1::Member { name, mode: mode.into(), permits };
        let request = AcquireAllRequest {
            members: members.into_iter().map(to_wire).collect(),
            wait_ms: whole_ms(options.wait),
            ttl_ms: options.ttl.map(whole_ms),
            max_hold_ms: options.max_hold.map(whole_ms),
            actor,
            metadata: options.metadata,
            policy: options.policy.to_wire().into(),
            since_ms: options.since.map(|since| since.0),
            preemptible: options.preemptible,
            lock_delay_ms: options.lock_delay.map(whole_ms),
            tier: options.tier.to_wire().into(),
            traceparent: options.traceparent,
            ..Default::default()
        };
        let (request, current) = (Request::AcquireAll(request), current_span.as_ref());
        let guards = acquire(&sessions, request, options.wait, on_queued, current).await?;
        Ok(GuardAll::new(guards))
    }
}

impl fmt::Debug for LockAllRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockAllRequest")
            .field("members", &self.members)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
