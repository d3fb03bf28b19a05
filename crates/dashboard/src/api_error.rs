//! What went wrong, as the page is told: a status, and JSON with words for people.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use holdfast_proto::v1::{Failure, Reason};
use serde_json::json;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) reason: String,
    pub(crate) words: String,
    pub(crate) may_have_happened: bool,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, reason: &str, words: impl Into<String>) -> ApiError {
        let reason = reason.to_owned();
        ApiError { status, reason, words: words.into(), may_have_happened: false }
    }

    pub(crate) fn bad_request(words: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", words)
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> ApiError {
        let status = match failure.reason() {
            Reason::NotLeader
            | Reason::NoQuorum
            | Reason::Overloaded
            | Reason::ShuttingDown
            | Reason::OutOfSpace
            | Reason::Unspecified => StatusCode::SERVICE_UNAVAILABLE,
            Reason::NoSuchSession | Reason::UnknownSession | Reason::NoSuchWaiter => {
                StatusCode::NOT_FOUND
            }
            Reason::Unauthenticated | Reason::CredentialExpired => StatusCode::UNAUTHORIZED,
            Reason::PermissionDenied => StatusCode::FORBIDDEN,
            Reason::NotHeld | Reason::NotFrozen | Reason::GrantEnded => StatusCode::CONFLICT,
            _ => StatusCode::BAD_REQUEST,
        };
        ApiError {
            status,
            reason: failure.reason().wire_name(),
            words: failure.message,
            may_have_happened: failure.may_have_happened,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({ "error": {
            "reason": self.reason,
            "words": self.words,
            "may_have_happened": self.may_have_happened,
        }});
        (self.status, Json(body)).into_response()
    }
}
