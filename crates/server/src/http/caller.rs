//! Who calls on the HTTP port. Each route passes the service, and what a page then asks for passes it again, as the same
//! caller.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_service::{Caller, Method, Protocol, Service, identity_header};

use crate::connections::Connection;

pub(super) async fn admit(
    State(service): State<Service>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(name) = identity_header(request.headers().keys().map(HeaderName::as_str)) {
        let words = format!("this port takes no header {name}; leave it out\n");
        return (StatusCode::BAD_REQUEST, words).into_response();
    }
    let connection = request.extensions().get::<Arc<Connection>>();
    let caller = match connection.map(|connection| connection.caller(Protocol::Http)) {
        Some(Ok(caller)) => caller,
        Some(Err(failure)) => {
            return (StatusCode::FORBIDDEN, format!("{}\n", failure.message)).into_response();
        }
        None => Caller::client(Protocol::Http, None),
    };
    // What is at no route is told so.
    if let Some(route) = request.extensions().get::<MatchedPath>() {
        let Some(method) = Method::of_route(route.as_str()) else {
            let words = format!("{} is not a method of the service\n", route.as_str());
            return (StatusCode::FORBIDDEN, words).into_response();
        };
        if let Err(failure) = service.admit(&caller, method, ()) {
            return (StatusCode::FORBIDDEN, format!("{}\n", failure.message)).into_response();
        }
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}
