//! Who calls on the HTTP port. Each route passes the service, and what a page then asks for passes it again, as the same
//! caller.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_service::{Caller, Method, Protocol, identity_header};

use super::login::Logins;
use super::refusal::refusal;
use crate::connections::Connection;
use crate::rpc::{authenticate, bearer};

pub(super) async fn admit(
    State(logins): State<Logins>,
    mut request: Request,
    next: Next,
) -> Response {
    let service = logins.service();
    if let Some(name) = identity_header(request.headers().keys().map(HeaderName::as_str)) {
        let words = format!("this port takes no header {name}; leave it out\n");
        return (StatusCode::BAD_REQUEST, words).into_response();
    }
    let connection = request.extensions().get::<Arc<Connection>>();
    let mut caller = match connection.map(|connection| connection.caller(Protocol::Http)) {
        Some(Ok(caller)) => caller,
        Some(Err(failure)) => return refusal(&failure),
        None => Caller::client(Protocol::Http, None),
    };
    if let Some(value) = request.headers().get(header::AUTHORIZATION) {
        let route = request.extensions().get::<MatchedPath>();
        let asked = route.and_then(|route| Method::of_route(route.as_str()));
        let asked = asked.unwrap_or(Method::HttpPage);
        let known = bearer(value.as_bytes())
            .and_then(|credential| authenticate(service, caller.clone(), asked, credential));
        match known {
            Ok(known) => caller = known,
            Err(failure) => return refusal(&failure),
        }
    } else if let Some((identity, credential)) = logins.identity(request.headers()) {
        caller = caller.authenticated(identity, credential);
    }
    // What is at no route is told so.
    if let Some(route) = request.extensions().get::<MatchedPath>() {
        let Some(method) = Method::of_route(route.as_str()) else {
            let words = format!("{} is not a method of the service\n", route.as_str());
            return (StatusCode::FORBIDDEN, words).into_response();
        };
        if let Err(failure) = service.admit(&caller, method, ()) {
            return refusal(&failure);
        }
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}
