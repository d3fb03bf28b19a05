//! Accepts what dials the client port, and detects the protocol. A framed connection goes to the shard; all others
//! speak HTTP/2. With TLS, the client names its protocol in the handshake. Without, the first byte tells.
//!
//! Each is counted by [`Connections`], which closes those that say nothing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::plain::{self, GREETING};
use holdfast_service::Protocol;
use holdfast_tls::{ALPN_FRAMED, Socket};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_stream::StreamExt;
use tonic::transport::server::TcpIncoming;

use super::Rpc;
use super::message_sizes::RESPONSE_BYTES_MAX;
use super::stream::{FramedConnection, FramedFrontEnd};
use crate::connections::{ClientSocket, Connections, OpenConnection, plaintext_refused};
use crate::stopping::Stopping;
use crate::transport::{Accepted, ClientPort, Transport, byte_stream, refuse_with};

/// When there are no more file descriptors, for example.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Returns when the node stops.
pub(super) async fn accept_connections(
    rpc: Rpc,
    clients: Arc<Connections>,
    mut incoming: TcpIncoming,
    transport: Transport,
    others: mpsc::Sender<io::Result<ClientSocket>>,
) {
    let front_end = FramedFrontEnd::new(rpc.clone());
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
                let (stopping, transport) = (rpc.stopping.clone(), transport.clone());
                let receiver =
                    Receiver { front_end: Arc::clone(&front_end), others: others.clone() };
                connections.spawn(receiver.receive(transport, stopping, socket, open));
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "a connection could not be taken");
                sleep(ACCEPT_AGAIN_AFTER).await;
            }
            None => break,
        }
    }
    // A client that dials a node that stops goes to another one at once.
    drop(incoming);
    while connections.join_next().await.is_some() {}
}

/// Where connections go.
struct Receiver {
    front_end: Arc<FramedFrontEnd>,
    others: mpsc::Sender<io::Result<ClientSocket>>,
}

impl Receiver {
    async fn receive(
        self,
        transport: Transport,
        stopping: Stopping,
        socket: TcpStream,
        open: OpenConnection,
    ) {
        if let Err(error) = close_when_unanswered(&socket) {
            tracing::debug!(%error, "a connection has no deadline for what its other end does not take");
        }
        let address = open.connection().remote();
        let accepted = tokio::select! {
            accepted = transport.accept_client(ClientPort::CallsAndFrames, socket, address) => accepted,
            () = open.closing() => return tracing::debug!("a connection said nothing in time"),
            () = stopping.begun() => return,
        };
        match accepted {
            Ok(Accepted::Ready(socket)) => self.pass_on(socket, open).await,
            Ok(Accepted::Plaintext(socket)) => self.refuse_plaintext(socket, open).await,
            Ok(Accepted::Refused) => {}
            Err(error) => tracing::debug!(%error, "a connection said nothing of use"),
        }
    }

    async fn pass_on(self, socket: Socket, open: OpenConnection) {
        let is_framed = match &socket {
            Socket::Plain(socket) => is_framed(socket).await,
            Socket::Tls(_) => Ok(socket.protocol() == Some(ALPN_FRAMED)),
        };
        open.connection().set_certificate(socket.remote_certificate());
        match is_framed {
            Ok(true) => self.hand_over(socket, open).await,
            // If none takes it the node is stopping.
            Ok(false) => drop(self.others.send(Ok(ClientSocket::new(socket, open))).await),
            Err(error) => tracing::debug!(%error, "a connection said nothing of use"),
        }
    }

    /// The runtime has nothing to do with the connection any more.
    async fn hand_over(self, socket: Socket, open: OpenConnection) {
        let caller = open.connection().caller(Protocol::Framed);
        let stream = byte_stream(socket);
        match (caller, stream) {
            (Ok(caller), Ok(stream)) => {
                let connection = FramedConnection::new(self.front_end, caller, stream, open);
                connection.hand_over_to_shard().await;
            }
            (Err(failure), _) => {
                tracing::warn!("a framed connection is refused: {}", failure.message);
            }
            (_, Err(error)) => tracing::warn!(%error, "a framed connection cannot be served"),
        }
    }

    /// The client hears in its own protocol why it is not served.
    async fn refuse_plaintext(self, socket: TcpStream, open: OpenConnection) {
        if is_framed(&socket).await.unwrap_or(false) {
            let mut words = GREETING.to_vec();
            plain::put(&mut words, plain::END, &plaintext_refused(), RESPONSE_BYTES_MAX);
            refuse_with(socket, &words).await;
        } else {
            open.connection().refuse_plaintext();
            drop(self.others.send(Ok(ClientSocket::new(Socket::Plain(socket), open))).await);
        }
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

/// The first byte tells. Nothing is read.
async fn is_framed(socket: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    Ok(socket.peek(&mut first).await? > 0 && first[0] == GREETING[0])
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
