//! What dials the peer port: a wire, or a program that speaks HTTP/2.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

use super::GREETING;
use super::connection_tickets::{ConnectionTicket, TICKET_BYTES};

/// The first byte tells. Nothing is read.
pub(in crate::peers) async fn is_wire(socket: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    Ok(socket.peek(&mut first).await? > 0 && first[0] == GREETING[0])
}

/// What a wire begins with.
pub(in crate::peers) async fn read_ticket(
    socket: &mut (impl AsyncRead + Unpin),
) -> io::Result<ConnectionTicket> {
    let mut greeting = [0; GREETING.len()];
    socket.read_exact(&mut greeting).await?;
    if greeting != GREETING {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a greeting of another kind"));
    }
    let mut ticket = [0; TICKET_BYTES];
    socket.read_exact(&mut ticket).await?;
    Ok(ConnectionTicket(ticket))
}
