//! What dials the peer port: a wire, or somebody who speaks HTTP/2.

use std::io;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::GREETING;
use super::connection_tickets::{ConnectionTicket, TICKET_BYTES};

#[derive(Debug)]
pub(in crate::peers) enum Kind {
    Wire(TcpStream, ConnectionTicket),
    /// Nothing of what it says was read.
    Other(TcpStream),
}

/// Waits for as much as it takes to tell.
pub(in crate::peers) async fn kind_of(mut socket: TcpStream) -> io::Result<Kind> {
    let mut first = [0];
    if socket.peek(&mut first).await? == 0 || first[0] != GREETING[0] {
        return Ok(Kind::Other(socket));
    }
    let mut greeting = [0; GREETING.len()];
    socket.read_exact(&mut greeting).await?;
    if greeting != GREETING {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a greeting of another kind"));
    }
    let mut ticket = [0; TICKET_BYTES];
    socket.read_exact(&mut ticket).await?;
    Ok(Kind::Wire(socket, ConnectionTicket(ticket)))
}
