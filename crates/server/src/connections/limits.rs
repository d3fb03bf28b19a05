//! How much the clients of a port may take.

use std::time::Duration;

use super::Descriptors;
use crate::config::ConnectionsConfig;

/// Descriptors that only the HTTP port takes: probes are answered when clients use all others.
const FOR_HTTP: usize = 32;

/// What one port allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortLimits {
    /// Connections of all kinds.
    pub(crate) connections_max: usize,
    pub(crate) connections_per_address_max: usize,
    /// Descriptors that this port leaves to others.
    pub(crate) descriptors_left: usize,
    pub(crate) idle_max: usize,
    pub(crate) idle_per_address_max: usize,
    /// Requests that are answered at a time, for one address.
    pub(crate) calls_per_address_max: usize,
    pub(crate) unfinished_max: usize,
    pub(crate) unfinished_per_address_max: usize,
    pub(crate) unfinished_per_connection_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) bytes_per_address_max: usize,
    pub(crate) bytes_per_connection_max: usize,
    /// Of answers that are made and not written out.
    pub(crate) unwritten_max: usize,
    pub(crate) unwritten_per_address_max: usize,
    pub(crate) unwritten_per_connection_max: usize,
    /// So long a new connection has for its first request before it may give way to others. While connections come
    /// faster than they give way, all that come after them wait to be taken in, whatever their address.
    pub(crate) grace: Duration,
    /// From the accept to the first request.
    pub(crate) first_request_timeout: Duration,
    /// From the last answer to the next request.
    pub(crate) idle_timeout: Duration,
    /// From the first byte of a request to its last.
    pub(crate) request_timeout: Duration,
}

impl PortLimits {
    /// Of the client port.
    pub(crate) fn of_clients(config: &ConnectionsConfig, descriptors: &Descriptors) -> PortLimits {
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let time = Duration::from_millis;
        let connections_max = match number(config.max) {
            0 => descriptors.for_clients(),
            max => max,
        };
        // One address that says nothing leaves room for the others.
        let idle_max = number(config.idle_max).min(connections_max / 4 * 3);
        PortLimits {
            connections_max,
            connections_per_address_max: connections_max,
            descriptors_left: FOR_HTTP,
            idle_max,
            idle_per_address_max: number(config.idle_per_address_max).min(idle_max),
            calls_per_address_max: usize::MAX,
            unfinished_max: number(config.unfinished_max),
            unfinished_per_address_max: number(config.unfinished_per_address_max),
            unfinished_per_connection_max: number(config.unfinished_per_connection_max),
            bytes_max: number(config.bytes_max),
            bytes_per_address_max: number(config.bytes_per_address_max),
            bytes_per_connection_max: number(config.bytes_per_connection_max),
            unwritten_max: number(config.unwritten_bytes_max),
            unwritten_per_address_max: number(config.unwritten_bytes_per_address_max),
            unwritten_per_connection_max: number(config.unwritten_bytes_per_connection_max),
            grace: Duration::from_millis(250),
            first_request_timeout: time(config.first_request_ms),
            idle_timeout: time(config.idle_ms),
            request_timeout: time(config.request_ms),
        }
    }

    /// Of the HTTP port: probes, scrapers and browsers.
    pub(crate) fn of_http() -> PortLimits {
        const CONNECTIONS_MAX: usize = 256;
        const MIB: usize = 1024 * 1024;
        PortLimits {
            connections_max: CONNECTIONS_MAX,
            connections_per_address_max: CONNECTIONS_MAX / 2,
            descriptors_left: 0,
            idle_max: CONNECTIONS_MAX / 8 * 7,
            idle_per_address_max: CONNECTIONS_MAX / 16 * 7,
            calls_per_address_max: CONNECTIONS_MAX / 8 * 3,
            unfinished_max: CONNECTIONS_MAX,
            unfinished_per_address_max: CONNECTIONS_MAX / 2,
            unfinished_per_connection_max: 8,
            bytes_max: 8 * MIB,
            bytes_per_address_max: 4 * MIB,
            bytes_per_connection_max: MIB,
            unwritten_max: 64 * MIB,
            unwritten_per_address_max: 32 * MIB,
            unwritten_per_connection_max: 4 * MIB,
            // Probes wait behind the connections of other addresses.
            grace: Duration::from_millis(50),
            first_request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(10),
        }
    }
}

/// A limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuch {
    #[error("{max} requests of this connection have not arrived whole, as many as may be")]
    UnfinishedOfConnection { max: usize },
    #[error("{max} requests from this address have not arrived whole, as many as may be")]
    UnfinishedOfAddress { max: usize },
    #[error("{max} requests to this node have not arrived whole, as many as may be")]
    UnfinishedOfPort { max: usize },
    #[error("the requests of this connection have more than {max} bytes together")]
    BytesOfConnection { max: usize },
    #[error("the requests from this address have more than {max} bytes together")]
    BytesOfAddress { max: usize },
    #[error("the requests to this node have more than {max} bytes together")]
    BytesOfPort { max: usize },
    #[error("{max} requests from this address are being answered, as many as may be")]
    CallsOfAddress { max: usize },
    #[error("{bytes} bytes of answers to this connection were not read")]
    UnreadOfConnection { bytes: usize },
    #[error("{bytes} bytes of answers to this address were not read")]
    UnreadOfAddress { bytes: usize },
    #[error("{bytes} bytes of answers of this node were not read, some of them by this client")]
    UnreadOfPort { bytes: usize },
}
