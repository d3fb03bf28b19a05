//! What a request asks for. A query that is wrong, a path that leads nowhere and a method that is not meant are told like
//! everything else that goes wrong, with a status and JSON.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use serde::de::DeserializeOwned;

use crate::failed::Failed;

#[derive(Debug)]
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Asked<T>, Failed> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(ask)) => Ok(Asked(ask)),
            Err(rejection) => Err(Failed::bad_request(rejection.body_text())),
        }
    }
}

pub(crate) async fn no_page_at(uri: Uri) -> Failed {
    no_such_page(uri.path())
}

pub(crate) fn no_such_page(path: &str) -> Failed {
    let words = format!("there is no {path}; the dashboard is at /");
    Failed::new(StatusCode::NOT_FOUND, "no_such_page", words)
}

pub(crate) async fn not_so(method: Method, uri: Uri) -> Failed {
    let words = format!("{} is not for {method}", uri.path());
    Failed::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", words)
}
