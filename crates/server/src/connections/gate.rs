//! Where calls of gRPC come in: each is counted for its connection, and one too many is refused.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{Service, http};
use tower_layer::Layer;

use super::body::overloaded;
use super::{Connection, RequestBody, ResponseBody, Shape};

/// What has to be known of the calls at a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths {
    pub(crate) shape_of: fn(path: &str) -> Shape,
    /// Such a call changes nothing. So its answer may be dropped.
    pub(crate) is_read: fn(path: &str) -> bool,
}

#[derive(Clone, Debug)]
pub(crate) struct GrpcGateLayer {
    paths: Paths,
}

impl GrpcGateLayer {
    pub(crate) fn new(paths: Paths) -> GrpcGateLayer {
        GrpcGateLayer { paths }
    }
}

impl<S> Layer<S> for GrpcGateLayer {
    type Service = GrpcGate<S>;

    fn layer(&self, inner: S) -> GrpcGate<S> {
        GrpcGate { inner, paths: self.paths }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct GrpcGate<S> {
    inner: S,
    paths: Paths,
}

type Answer = Result<http::Response<Body>, Infallible>;

impl<S> Service<http::Request<Body>> for GrpcGate<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let Some(connection) = request.extensions().get::<Arc<Connection>>() else {
            return Box::pin(self.inner.call(request));
        };
        let call = match connection.begin_call() {
            Ok(call) => call,
            Err(too_much) => {
                let refusal = overloaded(&too_much).to_status().into_http();
                return Box::pin(std::future::ready(Ok(refusal)));
            }
        };
        let shape = (self.paths.shape_of)(request.uri().path());
        if matches!(shape, Shape::Session { .. }) {
            request.extensions_mut().insert(Arc::clone(&call));
        }
        let of_request = Arc::clone(&call);
        let request = request.map(|body| Body::new(RequestBody::new(body, of_request, shape)));
        let (uri, is_read) = (request.uri().clone(), self.paths.is_read);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            match call.connection().check_unread() {
                Err(too_much) if is_read(uri.path()) => {
                    Ok(overloaded(&too_much).to_status().into_http())
                }
                _ => Ok(response.map(|body| Body::new(ResponseBody::made(body, call)))),
            }
        })
    }
}
