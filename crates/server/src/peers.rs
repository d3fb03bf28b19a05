//! How the nodes of one cluster reach each other.
//!
//! Each node dials each other node (`dial`) and is dialled by it (`accept`): messages flow from the
//! dialler to the dialled, so a pair of nodes has two of everything, one per direction. Both sides check
//! who the other one is (`handshake`) before a message passes, on a `wire` beside it. A snapshot takes a
//! connection of its own (`snapshot_out`, `snapshot_in`), so that a large one never delays a heartbeat.
//!
//! Connections follow the membership: a node that is added is dialled, one that is removed is told so and
//! dropped. A node that dials us and is not known yet is dialled back at the address that it gives.
//!
//! Nothing here waits for a peer on the driver's behalf: what cannot be sent is dropped, the driver
//! is told that the peer is unreachable, and consensus sends again.

mod accept;
mod backoff;
mod dial;
mod handshake;
mod links;
mod snapshot_in;
mod snapshot_out;
mod wire;

use std::time::Duration;

use tonic::transport::{Endpoint, Error};

pub(crate) use accept::PeerPort;
pub(crate) use handshake::{Handshake, LOG_VERSION};
pub(crate) use links::PeerLinks;
pub(crate) use wire::{ConnectionTickets, WiresIn};

use crate::config::Address;

/// Of the protocol between peers. A node refuses every other.
const PROTOCOL_VERSION: u32 = 2;

/// The largest message of the service that is decoded.
const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// Calls at a time on one connection, forwarded actions included.
pub(crate) const STREAMS_PER_CONNECTION_MAX: u32 = 1_024;

/// In the metadata of a forwarded action: the ticket of the node that forwards it.
pub(crate) const TICKET_KEY: &str = "holdfast-ticket-bin";

const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long either side waits for the other's part of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection on which a dead peer is noticed within about two seconds.
pub(crate) fn endpoint(address: &Address) -> Result<Endpoint, Error> {
    const KEEP_ALIVE: Duration = Duration::from_secs(1);
    const WINDOW_BYTES: u32 = 16 * 1024 * 1024;
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES))
}
