//! The client's end of a stream without HTTP/2 (see [`holdfast_proto::plain`]): the owner of the stream reads and writes it.
//!
//! A node that says nothing is asked every few seconds whether it is there, because a connection can stand long after its other
//! end has gone.

mod inbound;
mod outbound;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use holdfast_proto::plain;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::connection::CONNECT_TIMEOUT;
pub(super) use inbound::PlainInbound;
pub(super) use outbound::PlainOutbound;

pub(super) const NO_CONNECTION: &str = "no connection within a second";

/// A node greets at once. A peer that takes longer may be waiting for HTTP.
const GREETING_TIMEOUT: Duration = Duration::from_millis(400);

/// None: the peer does not speak this protocol, or does not say so soon.
pub(super) async fn greet(address: &str) -> io::Result<Option<TcpStream>> {
    let mut socket = connect(address).await?;
    socket.set_nodelay(true)?;
    let mut greeting = [0; plain::GREETING.len()];
    let greeted = async {
        socket.write_all(&plain::GREETING).await?;
        socket.read_exact(&mut greeting).await
    };
    let is_greeted = matches!(timeout(GREETING_TIMEOUT, greeted).await, Ok(Ok(_)));
    Ok((is_greeted && greeting == plain::GREETING).then_some(socket))
}

/// A name can have several addresses, and the first may be one that does not answer: each has its share of the time.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let no_answer = || io::Error::new(io::ErrorKind::TimedOut, NO_CONNECTION);
    let found = timeout(CONNECT_TIMEOUT, lookup_host(address)).await.map_err(|_| no_answer())??;
    let found: Vec<SocketAddr> = found.collect();
    let patience = CONNECT_TIMEOUT / u32::try_from(found.len()).unwrap_or(u32::MAX).max(1);
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in found {
        match timeout(patience, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = no_answer(),
        }
    }
    Err(failure)
}

/// Both halves of a connection on which both sides have greeted.
pub(super) fn open(socket: TcpStream) -> (PlainOutbound, PlainInbound) {
    let (reading, writing) = socket.into_split();
    let now = Instant::now();
    (PlainOutbound::new(writing, now), PlainInbound::new(reading, now))
}
