//! The HTTP port, for probes, scrapers and people: `/healthz`, `/readyz`, `/metrics`, and the dashboard.
//!
//! It is apart from the client port, so that it can be open to a monitoring network alone, and it never
//! holds up the shard: what it shows is published elsewhere already. Limits: connections, headers, bodies,
//! the time that a request's head may take, and the time that one of the node's own answers may take. An
//! answer of the dashboard may last, as a stream of events does, until the node stops. Who speaks
//! gRPC here has taken it for the client port, and is told where that is.

mod caller;
mod health;
mod login;
mod lost_clients;
mod metrics;
mod refusal;
mod serve;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use holdfast_replica::NodeId;
use holdfast_service::{Front, Method};
use tokio::sync::watch;

pub(crate) use self::login::Logins;
pub(crate) use self::lost_clients::explain_to_clients;
pub(crate) use self::serve::serve;
use crate::connections::Connections;
use crate::inbox::ShardHandle;
use crate::loop_watchdog::LoopWatchdog;
use crate::metrics::Metrics;
use crate::readiness::Readiness;

const BODY_BYTES_MAX: usize = 64 * 1024;

/// The routes of the port, as their patterns are written.
pub fn http_paths() -> impl Iterator<Item = &'static str> {
    Method::ALL.iter().filter_map(|method| match method.row().front {
        Front::Http(path) => Some(path),
        Front::Grpc(_) | Front::Stream => None,
    })
}

/// What the node's own pages show.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) node: NodeId,
    pub(crate) shard: ShardHandle,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) started_unix_ms: u64,
    pub(crate) watchdog: Arc<LoopWatchdog>,
    pub(crate) readiness: watch::Receiver<Readiness>,
    pub(crate) logins: Logins,
    /// Of the client port and of the HTTP port.
    pub(crate) connections: [Arc<Connections>; 2],
}

/// The node's own pages, and those of the dashboard.
pub(crate) fn routes(shown: Shown, dashboard: Router) -> Router {
    let logins = shown.logins.clone();
    let own = health::routes(shown.clone())
        .merge(metrics::routes(shown))
        .layer(axum::middleware::from_fn(serve::in_time));
    own.merge(login::routes(logins.clone()))
        .merge(dashboard)
        .layer(axum::middleware::from_fn_with_state(logins, caller::admit))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(axum::middleware::from_fn(serve::count))
}
