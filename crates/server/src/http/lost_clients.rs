//! An answer with words for callers who took the HTTP port for the client port. Without it they would read
//! `transport error`, after many tries.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Status;

use crate::membership::Membership;
use crate::wrong_port::answer_all;

/// The first bytes of a client that speaks HTTP/2 without an upgrade, as gRPC does. No method of HTTP/1 begins so.
const PREFACE_START: &[u8] = b"PRI";

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
    answer_all(stream, Status::unimplemented(&*words)).await;
}
