//! An answer with words for callers who took the client port for the peer port, or the other way
//! round. Without it they would read `UNIMPLEMENTED` and nothing else.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;
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

/// They have read their answer long before.
const STAY_MAX: Duration = Duration::from_secs(5);
const STREAMS_MAX: u32 = 16;
/// The least that HTTP/2 begins with.
const WINDOW_BYTES: u32 = 65_535;

/// Gives every call on the connection this answer, and reads nothing of what the calls send.
pub(crate) async fn answer_all(stream: TcpStream, status: Status) {
    let answer =
        service_fn(move |_| ready(Ok::<_, Infallible>(status.clone().into_http::<Body>())));
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .serve_connection(TokioIo::new(stream), answer);
    // Whether they hear it out is theirs to decide.
    let _ = timeout(STAY_MAX, connection).await;
}
