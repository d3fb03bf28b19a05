//! A wire: a connection without HTTP/2 that carries consensus messages one way, from the dialler to the dialled.
//!
//! The shard itself reads and writes it, on its own thread: between the one who proposes and the one who writes
//! to disk there is no task that must first be woken, and no message is copied into a frame of another protocol.
//! Everything that is rare (who may speak, refusals, snapshots, noticing a dead peer) stays with the gRPC service:
//! its welcome contains a ticket, a number that opens one wire, and the wire ends when its exchange does.
//!
//! ```text
//! GREETING, 16 bytes of ticket, then for each message: length u32, group u32 (both little-endian), message
//! ```

mod connection_tickets;
mod incoming;
mod outgoing;
mod wire_detection;

use std::io;

use holdfast_replica::NodeId;
use holdfast_tls::{ALPN_PEER, Socket};
use tokio::io::AsyncWriteExt;

pub(crate) use connection_tickets::{ConnectionTicket, ConnectionTickets};
pub(crate) use incoming::WiresIn;
pub(super) use outgoing::{Messages, NotSent, WireOut};
pub(super) use wire_detection::{is_wire, read_ticket};

use crate::config::Address;
use crate::transport::Transport;

/// No HTTP begins so, which is how the port tells the two apart by the first byte.
const GREETING: [u8; 4] = [0xf5, b'h', b'f', b'1'];

const HEADER_BYTES: usize = 8;

/// Far more than consensus puts into one message, unless one entry is as large: that one has to travel too.
const MESSAGE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The exchange notices a peer that is dead. Should only the wire's packets get lost, the system notices.
#[cfg(target_os = "linux")]
const UNHEARD_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// Dials, and shows the ticket.
pub(super) async fn dial(
    transport: &Transport,
    node: NodeId,
    address: &Address,
    ticket: ConnectionTicket,
) -> io::Result<Socket> {
    let mut socket = transport.dial_peer(node, address, ALPN_PEER).await?;
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(socket.tcp()).set_tcp_user_timeout(Some(UNHEARD_MAX))?;
    socket.write_all(&GREETING).await?;
    socket.write_all(&ticket.0).await?;
    socket.flush().await?;
    Ok(socket)
}
