//! An answer with words for callers who took the HTTP port for the client port. Without it they would read
//! `transport error`, after many tries.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Status;

use crate::membership::Membership;

/// The first bytes of a client that speaks HTTP/2 without an upgrade, as gRPC does. No method of HTTP/1 begins so.
const PREFACE_START: &[u8] = b"PRI";

/// They have read their answer long before.
const STAY_MAX: Duration = Duration::from_secs(5);
const STREAMS_MAX: u32 = 16;

/// What they are told.
pub(crate) fn explain_to_clients(membership: &Membership) -> Arc<str> {
    let (me, clients) = (membership.me, membership.client_address(Some(membership.me)));
    format!("this is the HTTP port of node {me}; clients use {clients}").into()
}

/// Whether what comes first on this connection, and is still to be read, is gRPC; none if nothing comes in time.
pub(super) async fn is_grpc(stream: &TcpStream, patience: Duration) -> Option<bool> {
    let mut start = [0; PREFACE_START.len()];
    let length = timeout(patience, stream.peek(&mut start)).await.ok()?.ok()?;
    (length > 0).then_some(start == PREFACE_START)
}

/// Tells whatever is called where it is served.
pub(super) async fn redirect(stream: TcpStream, words: Arc<str>) {
    let answer = service_fn(move |_| {
        std::future::ready(Ok::<_, Infallible>(
            Status::unimplemented(&*words).into_http::<tonic::body::Body>(),
        ))
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    // Whether they hear it out is theirs to decide.
    let _ = timeout(STAY_MAX, connection).await;
}
