//! An answer with words for callers who took the client port for the peer port, or the other way
//! round. Without it they would read `UNIMPLEMENTED` and nothing else.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

/// Stands in for the service `S` on a port where it is not served.
#[derive(Debug)]
pub(crate) struct WrongPort<S> {
    words: Arc<str>,
    absent: PhantomData<fn() -> S>,
}

impl<S> WrongPort<S> {
    pub(crate) fn new(words: &str) -> WrongPort<S> {
        WrongPort { words: Arc::from(words), absent: PhantomData }
    }
}

impl<S> Clone for WrongPort<S> {
    fn clone(&self) -> Self {
        WrongPort { words: Arc::clone(&self.words), absent: PhantomData }
    }
}

impl<S: NamedService> NamedService for WrongPort<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for WrongPort<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        ready(Ok(Status::unimplemented(&*self.words).into_http()))
    }
}
