//! `/metrics`: what the node has counted, for Prometheus and programs that read its format.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Shown;
use crate::metrics::{Extra, page};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn routes(shown: Shown) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(shown)
}

async fn metrics(State(shown): State<Shown>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let open_metrics = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
    let (inbox_operations, inbox_refusals) = shown.shard.backlog();
    let extra = Extra {
        node: shown.node.0,
        ready: shown.readiness.borrow().is_serving(),
        uptime_seconds: shown.watchdog.age().as_secs_f64(),
        started_unix_seconds: shown.started_unix_ms as f64 / 1e3,
        inbox_operations,
        inbox_refusals,
        ports: shown.connections.each_ref().map(|port| port.used()),
        client_certificate_ends: shown.transport.client_certificate_ends(),
        peer_certificate_ends: shown.transport.peer_certificate_ends(),
        policy_generations: shown.shard.policy_generations().all(),
    };
    match page(&shown.metrics, extra, open_metrics) {
        Ok(text) => {
            let kind = if open_metrics { OPEN_METRICS } else { CLASSIC };
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be made\n").into_response(),
    }
}
