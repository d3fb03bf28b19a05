//! What dials the client port: sessions without HTTP/2, and all others, who speak it.
//!
//! A connection that says nothing is let go of after a while. So what waits to be told apart is bounded by how many the system
//! lets a process have.

use std::io;
use std::time::Duration;

use holdfast_proto::plain::GREETING;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tonic::transport::server::TcpIncoming;

use super::Rpc;
use super::stream::serve_plain;

/// When there are no more file descriptors, for example.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Who dials speaks first.
const FIRST_WORD_TIMEOUT: Duration = Duration::from_secs(10);

/// Sessions are served here, and all others go to the service. Returns when the node stops and the sessions' streams have ended.
pub(super) async fn sort(
    rpc: Rpc,
    mut incoming: TcpIncoming,
    others: mpsc::Sender<io::Result<TcpStream>>,
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
                connections.spawn(receive(rpc.clone(), socket, others.clone()));
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

async fn receive(rpc: Rpc, mut socket: TcpStream, others: mpsc::Sender<io::Result<TcpStream>>) {
    let first_word = timeout(FIRST_WORD_TIMEOUT, is_session(&mut socket));
    let is_session = tokio::select! {
        is_session = first_word => is_session,
        () = rpc.stopping.begun() => return,
    };
    match is_session {
        Ok(Ok(true)) => serve_plain(rpc, socket).await,
        // If nobody takes it the node is stopping.
        Ok(Ok(false)) => drop(others.send(Ok(socket)).await),
        Ok(Err(error)) => tracing::debug!(%error, "a connection said nothing of use"),
        Err(_) => tracing::debug!("a connection said nothing in time"),
    }
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
