//! The client: its sessions with the cluster, shared by all clones.

use std::sync::Arc;

use holdfast_proto::v1::StatusResponse;

use crate::acquire_call::CurrentSpan;
use crate::circuit::Circuit;
use crate::efficiency::{EfficiencyStatus, Route};
use crate::election::Election;
use crate::error::CloseError;
use crate::lock::LockRequest;
use crate::lock_all::{LockAllRequest, Member};
use crate::metrics::ClientMetrics;
use crate::session::Sessions;
use crate::status;
use crate::unary::{CallError, TokenState, Watch};

/// The client's sessions: one or, in a cluster with several groups, also one in each further group whose locks it uses.
/// Clones share them; they are closed when the last clone and the last guard are gone.
#[derive(Debug, Clone)]
pub struct Client {
    sessions: Sessions,
    route: Arc<Route>,
    current_span: Option<CurrentSpan>,
}

impl Client {
    pub(crate) fn new(
        sessions: Sessions,
        route: Arc<Route>,
        current_span: Option<CurrentSpan>,
    ) -> Client {
        Client { sessions, route, current_span }
    }

    pub fn lock(&self, name: impl Into<String>) -> LockRequest {
        let request = LockRequest::new(self.sessions.clone(), name.into()).by(&self.route);
        request.within(&self.current_span)
    }

    /// Several locks, all at one moment or none: a part of them is never held. Bare names are exclusive;
    /// see [`Member`] for other modes. In a cluster of several groups, the names need one tag, such as `{order}/a` and
    /// `{order}/b`: see docs/protocol.md.
    pub fn lock_all<M: Into<Member>>(
        &self,
        members: impl IntoIterator<Item = M>,
    ) -> LockAllRequest {
        let members = members.into_iter().map(Into::into).collect();
        let (sessions, route) = (self.sessions.clone(), Arc::clone(&self.route));
        LockAllRequest::new(sessions, route, members, self.current_span.clone())
    }

    /// An election of this name, to stand in or to observe.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.sessions.clone(), name.into())
    }

    /// What happens to the locks under a prefix: a snapshot first, then every event once, in order within each group.
    /// It goes on over broken connections and changes of leader. If it cannot continue without a gap, it reports
    /// [`Restarted`](crate::unary::Watched::Restarted), and a new snapshot follows.
    pub fn watch(&self, prefix: &str) -> Watch {
        self.sessions.calls().watch(prefix)
    }

    /// Who holds a lock and who waits for it, in both tiers, as of a moment between the call and its answer: how many,
    /// and at least the first ten of each (if there are so many). In a cluster with several groups, the holders of the
    /// efficiency tier can be missing. [`Unary::status`](crate::unary::Unary::status) tells
    /// of more.
    pub async fn status(&self, name: &str) -> Result<StatusResponse, CallError> {
        status::status(&self.sessions, name).await
    }

    /// Whether a lock is still held under a token in full form, as [`Guard::fence`](crate::Guard::fence) gives
    /// it. A hint, and not a fence: see [`Unary::check_token`](crate::unary::Unary::check_token).
    pub async fn check_token(&self, name: &str, fence: &str) -> Result<TokenState, CallError> {
        self.sessions.calls().check_fence(name, fence).await
    }

    /// The circuit breaker. Closed: calls are sent. Otherwise they fail at once, because no node has served the session
    /// for 3 s. With several groups this is the worst state of all; only calls for a group whose own breaker is not
    /// closed fail.
    pub fn circuit(&self) -> Circuit {
        self.sessions.circuit()
    }

    /// How the efficiency tier is doing: which backend serves it, the state of its circuit breaker, and counts of how
    /// calls ended. It asks no server.
    pub fn efficiency(&self) -> EfficiencyStatus {
        self.route.status(self.sessions.root())
    }

    /// How the client is doing, for a program's own page of metrics: `client.metrics().to_string()`.
    pub fn metrics(&self) -> ClientMetrics {
        let efficiency = self.efficiency();
        ClientMetrics {
            circuit: self.circuit().state(),
            efficiency_circuit: efficiency.circuit,
            efficiency: efficiency.counts,
        }
    }

    /// The circuit breaker of the efficiency tier; see [`Client::efficiency`].
    pub fn efficiency_circuit(&self) -> Circuit {
        self.route.circuit(self.sessions.root())
    }

    /// Ends the session, in each group that has one: all its locks and places in queues are freed at once, also those
    /// of clones, and those kept in Redis.
    pub async fn close(self) -> Result<(), CloseError> {
        // What cannot be given back in time ends with its TTL.
        let outside = tokio::time::timeout(self.sessions.request_timeout(), self.route.close());
        let (closed, _) = tokio::join!(self.sessions.close(), outside);
        closed.map_err(CloseError)
    }
}

/// This machine's name for [`Owner::host`](crate::Owner::host); empty if the system does not tell it.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .or_else(|_| std::env::var("HOSTNAME"))
        .unwrap_or_default()
}
