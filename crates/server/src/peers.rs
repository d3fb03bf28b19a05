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
//! Nothing here waits for a peer on the shard's behalf: what cannot be sent is dropped, the shard
//! is told that the peer is unreachable, and consensus sends again.

mod accept;
mod backoff;
mod connection_limits;
mod dial;
mod handshake;
mod link;
mod links;
mod peer_socket;
mod snapshot_in;
mod snapshot_out;
mod unproved_connections;
mod wire;

use std::time::Duration;

use tonic::transport::{Endpoint, Error};

pub(crate) use accept::PeerPort;
pub(crate) use handshake::{Handshake, LOG_VERSION};
pub(crate) use links::PeerLinks;
pub(crate) use peer_socket::Shown;
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

/// What a connection between nodes has on its way in one direction.
///
/// Many clients share a connection. Each may leave its streams unread. So all streams of a connection together never fill
/// the connection's window, and a stream that is read always goes on.
#[derive(Clone, Copy, Debug)]
struct Windows {
    stream_bytes: u32,
    connection_bytes: u32,
}

impl Windows {
    /// The most that HTTP/2 allows.
    const BYTES_MAX: u32 = (1 << 31) - 1;

    const fn of_stream(stream_bytes: u32) -> Windows {
        assert!(stream_bytes <= Windows::BYTES_MAX / (STREAMS_PER_CONNECTION_MAX + 1));
        // One more than there are streams: something is left when each of them is full.
        Windows { stream_bytes, connection_bytes: stream_bytes * (STREAMS_PER_CONNECTION_MAX + 1) }
    }
}

/// From the node that dials to the other: snapshots, and what clients send.
const UPWARDS: Windows = Windows::of_stream(512 * 1024);

/// To the node that dials: what clients are answered.
const DOWNWARDS: Windows = Windows::of_stream(256 * 1024);

/// A connection on which a dead peer is noticed within about two seconds.
pub(crate) fn endpoint(address: &Address) -> Result<Endpoint, Error> {
    const KEEP_ALIVE: Duration = Duration::from_secs(1);
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(DOWNWARDS.connection_bytes)
        .initial_stream_window_size(DOWNWARDS.stream_bytes))
}
