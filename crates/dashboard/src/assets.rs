//! The pages themselves, and the headers under which a browser shows them.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

use crate::query_params::no_such_page;

/// Only our own files, no script or style within a page, and no other site may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

struct Asset {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! assets {
    ($($path:literal $kind:literal),* $(,)?) => {
        &[$(Asset {
            path: $path,
            kind: $kind,
            bytes: include_bytes!(concat!("../assets/", $path)),
        }),*]
    };
}

static ASSETS: &[Asset] = assets![
    "index.html" "text/html; charset=utf-8",
    "style.css" "text/css; charset=utf-8",
    "icon.svg" "image/svg+xml",
    "app.js" "text/javascript; charset=utf-8",
    "dom.js" "text/javascript; charset=utf-8",
    "text.js" "text/javascript; charset=utf-8",
    "route.js" "text/javascript; charset=utf-8",
    "api.js" "text/javascript; charset=utf-8",
    "live.js" "text/javascript; charset=utf-8",
    "groups.js" "text/javascript; charset=utf-8",
    "login.js" "text/javascript; charset=utf-8",
    "plot.js" "text/javascript; charset=utf-8",
    "own-view.js" "text/javascript; charset=utf-8",
    "owners.js" "text/javascript; charset=utf-8",
    "cycle.js" "text/javascript; charset=utf-8",
    "graph-layout.js" "text/javascript; charset=utf-8",
    "dialog.js" "text/javascript; charset=utf-8",
    "view-overview.js" "text/javascript; charset=utf-8",
    "view-groups.js" "text/javascript; charset=utf-8",
    "view-locks.js" "text/javascript; charset=utf-8",
    "view-lock.js" "text/javascript; charset=utf-8",
    "view-graph.js" "text/javascript; charset=utf-8",
    "view-sessions.js" "text/javascript; charset=utf-8",
    "view-events.js" "text/javascript; charset=utf-8",
    "view-elections.js" "text/javascript; charset=utf-8",
];

/// Of each, in the same order.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |asset: &Asset| {
        let digest = Sha256::digest(asset.bytes);
        let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        format!("\"{hex}\"")
    };
    ASSETS.iter().map(tag).collect()
});

pub(crate) fn routes() -> Router {
    Router::new()
        .route("/", get(|headers: HeaderMap| async move { page("index.html", &headers) }))
        .route("/assets/{file}", get(file))
}

async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    page(&path, &headers)
}

/// A browser asks each time whether it has the present one: a node may have been upgraded.
fn page(path: &str, headers: &HeaderMap) -> Response {
    let Some(at) = ASSETS.iter().position(|asset| asset.path == path) else {
        return no_such_page(&format!("/assets/{path}")).into_response();
    };
    let (asset, tag) = (&ASSETS[at], TAGS[at].as_str());
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let tagged = [(ETAG, tag), (CACHE_CONTROL, "no-cache")];
    if known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag)) {
        return (StatusCode::NOT_MODIFIED, tagged).into_response();
    }
    (tagged, [(CONTENT_TYPE, asset.kind)], asset.bytes).into_response()
}

/// Around every answer of the dashboard, data included.
pub(crate) async fn with_policy(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let fixed = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
