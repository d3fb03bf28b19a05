//! Which protocol a client speaks on the client port: framed sessions, or HTTP/2.
//!
//! Each is counted by [`Connections`], which closes those that say nothing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::plain::GREETING;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_stream::StreamExt;
use tonic::transport::server::TcpIncoming;

use super::Rpc;
use super::stream::serve_plain;
use crate::connections::{ClientSocket, Connections, OpenConnection};

/// When there are no more file descriptors, for example.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Sessions are served here, and all others go to the service. Returns when the node stops and the sessions' streams have ended.
pub(super) async fn accept_connections(
    rpc: Rpc,
    clients: Arc<Connections>,
    mut incoming: TcpIncoming,
    others: mpsc::Sender<io::Result<ClientSocket>>,
) {
    let mut connections = JoinSet::new();
    loop {
        let next = tokio::select! {
            next = incoming.next() => next,
            Some(_) = connections.join_next() => continue,
            () = rpc.stopping.begun() => break,
        };
        match next {
            Some(Ok(socket)) => {
                let address = socket.peer_addr().map(|address| address.ip());
                // One that is gone already has no address.
                let Ok(address) = address else { continue };
                let Some(open) = clients.admit(address).await else { continue };
                connections.spawn(receive(rpc.clone(), socket, open, others.clone()));
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "a connection could not be taken");
                sleep(ACCEPT_AGAIN_AFTER).await;
            }
            None => break,
        }
    }
    // Whoever dials a node that stops goes to another one at once.
    drop(incoming);
    while connections.join_next().await.is_some() {}
}

async fn receive(
    rpc: Rpc,
    mut socket: TcpStream,
    open: OpenConnection,
    others: mpsc::Sender<io::Result<ClientSocket>>,
) {
    if let Err(error) = close_when_unanswered(&socket) {
        tracing::debug!(%error, "a connection has no deadline for what its other end does not take");
    }
    let is_session = tokio::select! {
        is_session = is_session(&mut socket) => is_session,
        () = open.closing() => return tracing::debug!("a connection said nothing in time"),
        () = rpc.stopping.begun() => return,
    };
    match is_session {
        Ok(true) => serve_plain(rpc, socket, open).await,
        // If none takes it the node is stopping.
        Ok(false) => drop(others.send(Ok(ClientSocket::new(socket, open))).await),
        Err(error) => tracing::debug!(%error, "a connection said nothing of use"),
    }
}

/// What this node sends must be acknowledged within this time, or the connection ends. Keep-alive probes do the same for
/// a connection on which nothing is sent. So what a client sent comes within this time, or never: an opening of a session
/// that has been forgotten must not arrive (see `Limits::ended_sessions_span`).
#[cfg(target_os = "linux")]
const UNANSWERED_MAX: Duration = Duration::from_secs(30);

#[cfg(target_os = "linux")]
fn close_when_unanswered(socket: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(socket).set_tcp_user_timeout(Some(UNANSWERED_MAX))
}

#[cfg(not(target_os = "linux"))]
fn close_when_unanswered(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

/// Waits for as much as it takes to tell. Of others nothing is read.
async fn is_session(socket: &mut TcpStream) -> io::Result<bool> {
    let mut greeting = [0; GREETING.len()];
    if socket.peek(&mut greeting[..1]).await? == 0 || greeting[0] != GREETING[0] {
        return Ok(false);
    }
    socket.read_exact(&mut greeting).await?;
    if greeting != GREETING {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a greeting of another kind"));
    }
    Ok(true)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_ends_long_before_an_ended_session_is_forgotten() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        close_when_unanswered(&socket).unwrap();
        let set = socket2::SockRef::from(&socket).tcp_user_timeout().unwrap();
        assert_eq!(set, Some(UNANSWERED_MAX));
        let span = holdfast_core::Limits::default().ended_sessions_span.as_ms();
        let arrival = Duration::from_millis(crate::config::ARRIVAL_MS_MAX);
        let unheard = UNANSWERED_MAX + arrival * 2 + super::super::unary::CALL_TIMEOUT;
        assert!(unheard < Duration::from_millis(span), "{unheard:?}");
    }
}
