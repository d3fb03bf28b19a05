//! How the HTTP port says that the service refused a request.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use holdfast_proto::v1::{Failure, Reason};

pub(super) fn refusal(failure: &Failure) -> Response {
    let status = match failure.reason() {
        Reason::Unauthenticated | Reason::CredentialExpired => StatusCode::UNAUTHORIZED,
        Reason::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        Reason::InvalidFrame => StatusCode::BAD_REQUEST,
        _ => StatusCode::FORBIDDEN,
    };
    (status, format!("{}\n", failure.message)).into_response()
}
