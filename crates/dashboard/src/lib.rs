//! The dashboard: pages for a browser, and what they ask for.
//!
//! The pages are plain files in `assets/`, in the binary; they are built with nothing. They ask under
//! `/api/`, and what is shown there comes from a [`Source`]: a node, or in tests a made-up one.
//!
//! # Invariants
//!
//! * Nothing that a client of the cluster has chosen (names, owners, metadata, reasons) is ever made part of
//!   a page: it travels as JSON, and the pages show it as text. The content security policy allows no
//!   script but the files of this crate.
//! * The page asks for what it shows: every answer is bounded, however large the table is.
//! * Looking is free for all who reach the port, by a name that the node knows as its own: no site can look through
//!   a user's browser. Doing needs the secret of [`Actions`], and comes from this
//!   very page: a request that a browser makes on behalf of another site is refused before anything else.
//! * What lasts (streams) is bounded in number and in memory; a page that does not read is cut off.

mod act;
mod api_error;
mod assets;
mod events;
mod graph;
mod groups;
mod guard;
mod hosts;
mod live;
mod own_view;
mod owners;
mod page_data;
mod query_params;
mod samples;
mod shape;
mod source;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::{get, post};
use tokio::sync::{Semaphore, watch};

pub use guard::{Actions, is_from_our_page};
pub use hosts::Hosts;
pub use source::{NodeView, OwnView, RecentEvents, Source, WatchFrames};

use guard::Guard;
use live::LiveStatus;

/// Streams that one node keeps open for browsers, of both kinds.
const STREAMS_MAX: usize = 64;

/// What all pages share. Cheap to clone.
#[derive(Debug)]
pub struct Dashboard<S> {
    source: Arc<S>,
    guard: Arc<Guard>,
    live_status: watch::Receiver<Arc<LiveStatus>>,
    streams: Arc<Semaphore>,
}

impl<S> Clone for Dashboard<S> {
    fn clone(&self) -> Dashboard<S> {
        Dashboard {
            source: Arc::clone(&self.source),
            guard: Arc::clone(&self.guard),
            live_status: self.live_status.clone(),
            streams: Arc::clone(&self.streams),
        }
    }
}

/// Each request sees the node as its caller does.
impl<S: Source> FromRequestParts<Dashboard<S>> for Dashboard<S> {
    type Rejection = StatusCode;

    async fn from_request_parts(
        parts: &mut Parts,
        dashboard: &Dashboard<S>,
    ) -> Result<Dashboard<S>, StatusCode> {
        let source = dashboard.source.called_by(&parts.extensions).map(Arc::new);
        // Every request of the port has a caller.
        let source = source.ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok(Dashboard { source, ..dashboard.clone() })
    }
}

/// The pages, and the task that takes the samples which they plot. It runs for as long as it is polled.
pub fn dashboard<S: Source>(
    source: Arc<S>,
    actions: Actions,
    hosts: Hosts,
) -> (Router, impl Future<Output = ()> + Send + use<S>) {
    let (sender, live_status) = watch::channel(Arc::new(LiveStatus::default()));
    let streams = Arc::new(Semaphore::new(STREAMS_MAX));
    let guard = Arc::new(Guard::new(actions));
    let dashboard = Dashboard {
        source: Arc::clone(&source),
        guard,
        live_status,
        streams: Arc::clone(&streams),
    };
    let routes = Router::new()
        .route("/api/live", get(live::serve))
        .route("/api/events", get(events::serve))
        .route("/api/recent", get(page_data::recent))
        .route("/api/own", get(own_view::serve))
        .route("/api/groups", get(groups::serve))
        .route("/api/locks", get(page_data::locks))
        .route("/api/lock", get(page_data::lock))
        .route("/api/sessions", get(page_data::sessions))
        .route("/api/freezes", get(page_data::freezes))
        .route("/api/elections", get(page_data::elections))
        .route("/api/graph", get(graph::serve))
        .route("/api/owners", get(owners::serve))
        .route("/api/actions/{action}", post(act::serve))
        .with_state(dashboard)
        .merge(assets::routes())
        .fallback(query_params::no_page_at)
        .method_not_allowed_fallback(query_params::method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(Arc::new(hosts), hosts::known_only))
        .layer(axum::middleware::map_response(assets::with_policy));
    (routes, live::keep_sampling(source, sender, streams))
}
