//! gRPC on the client port: who calls, and what a call's answer is as a status.
//!
//! The layer stands before all services of the port. It refuses claims of an identity, says who calls, and admits what no
//! code of ours serves (health, reflection). Whatever else is called is admitted where it is decoded.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use holdfast_proto::failure::not_now;
use holdfast_proto::v1::{Failure, Reason};
use holdfast_replica::GroupId;
use holdfast_service::{Caller, Kind, Limit, Method, Protocol, identity_header};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::{Extensions, Request, Response, Status};
use tower_layer::Layer;

use super::Rpc;
use super::credentials::bearer;
use super::failure::bug;
use crate::connections::Connection;

/// Serves a call that has one answer.
pub(super) async fn call<M, R, F>(
    request: Request<M>,
    serve: impl FnOnce(Caller, M) -> F,
) -> Result<Response<R>, Status>
where
    F: Future<Output = Result<R, Failure>>,
{
    let caller = caller(request.extensions())?;
    Ok(serve(caller, request.into_inner()).await.map(Response::new)?)
}

/// Who calls, as the layer found it.
pub(super) fn caller(extensions: &Extensions) -> Result<Caller, Failure> {
    extensions.get::<Caller>().cloned().ok_or_else(|| bug("a call without a caller"))
}

#[derive(Clone, Debug)]
pub(super) struct CallerLayer {
    rpc: Rpc,
}

impl CallerLayer {
    pub(super) fn new(rpc: Rpc) -> CallerLayer {
        CallerLayer { rpc }
    }
}

impl<S> Layer<S> for CallerLayer {
    type Service = WithCaller<S>;

    fn layer(&self, inner: S) -> WithCaller<S> {
        WithCaller { inner, rpc: self.rpc.clone() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct WithCaller<S> {
    inner: S,
    rpc: Rpc,
}

impl<S> Service<http::Request<Body>> for WithCaller<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        match self.rpc.receive(&request) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                Box::pin(self.inner.call(request))
            }
            Err(failure) => Box::pin(std::future::ready(Ok(failure.to_status().into_http()))),
        }
    }
}

impl Rpc {
    fn receive(&self, request: &http::Request<Body>) -> Result<Caller, Failure> {
        if let Some(name) = identity_header(request.headers().keys().map(http::HeaderName::as_str))
        {
            return Err(self.identity_claimed(name));
        }
        let connection = request.extensions().get::<Arc<Connection>>();
        let mut caller = match connection {
            Some(connection) => connection.caller(Protocol::Grpc)?,
            None => return Err(bug("a call without a connection")),
        };
        let method = Method::at_path(request.uri().path());
        if let Some(value) = request.headers().get(http::header::AUTHORIZATION) {
            // What has no row is not served.
            let asked = method.unwrap_or(Method::Reflect);
            caller = self.authenticate(caller, asked, bearer(value.as_bytes())?)?;
        }
        match method {
            Some(method)
                if matches!(method.row().kind, Kind::Probe | Kind::Description)
                    && method.row().limit == Limit::None =>
            {
                self.door.admit(&caller, method, ())?;
            }
            // All others decode the request first. What has no row is not served.
            _ => {}
        }
        Ok(caller)
    }

    /// A node of version 0.1 forwards requests in this way. It tells its client what it is told here, and the client goes
    /// to the leader.
    fn identity_claimed(&self, header: &str) -> Failure {
        let words = format!(
            "the client port takes no header {header}: only nodes say on whose behalf they ask, on the peer port; ask the \
             leader without it"
        );
        let leader = self.membership.client_address(self.door.leadership(GroupId::FIRST).leader);
        Failure { leader, ..not_now(Reason::NotLeader, words) }
    }
}
