//! `/healthz`: is the process worth keeping? `/readyz`: should it get requests? Both answer 200, or 503 with a
//! reason in plain words.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use super::Shown;

pub(super) fn routes(shown: Shown) -> Router {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready)).with_state(shown)
}

/// A node without a leader is alive: to restart it would not give it one.
async fn alive(State(shown): State<Shown>) -> (StatusCode, String) {
    match shown.watchdog.stopped_for() {
        None => (StatusCode::OK, "alive\n".to_owned()),
        Some(time) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the loop has not turned for {} s\n", time.as_secs()),
        ),
    }
}

async fn ready(State(shown): State<Shown>) -> (StatusCode, String) {
    let readiness = *shown.readiness.borrow();
    let code =
        if readiness.is_serving() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, format!("{readiness}\n"))
}
