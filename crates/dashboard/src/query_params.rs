//! What a request asks for. A query that is wrong, a path that leads nowhere and a method that is not meant are told like
//! everything else that goes wrong, with a status and JSON.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use serde::de::DeserializeOwned;

use crate::api_error::ApiError;

#[derive(Debug)]
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<QueryParams<T>, ApiError> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(ask)) => Ok(QueryParams(ask)),
            Err(rejection) => Err(ApiError::bad_request(rejection.body_text())),
        }
    }
}

pub(crate) async fn no_page_at(uri: Uri) -> ApiError {
    no_such_page(uri.path())
}

pub(crate) fn no_such_page(path: &str) -> ApiError {
    let words = format!("there is no {path}; the dashboard is at /");
    ApiError::new(StatusCode::NOT_FOUND, "no_such_page", words)
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let words = format!("{} is not for {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", words)
}
