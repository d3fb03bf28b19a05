//! `[connections]`: what clients may take of this node.

use serde::Deserialize;

use super::CheckError;
use super::check_error::in_range;

const MIB: u64 = 1024 * 1024;

/// A request that opens a session must not come later than the nodes remember that the session has ended
/// (`Limits::ended_sessions_span`).
pub(crate) const ARRIVAL_MS_MAX: u64 = 20_000;

/// Of the client port. The HTTP port has fixed limits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionsConfig {
    /// Connections of clients. 0: as many as there are file descriptors beyond the reserve.
    pub max: u64,
    /// Connections without an open session and without a call under way, of all addresses.
    pub idle_max: u64,
    pub idle_per_address_max: u64,
    /// From the accept to the first request.
    pub first_request_ms: u64,
    /// From the last answer to the next request.
    pub idle_ms: u64,
    /// From the first byte of a request to its last.
    pub request_ms: u64,
    /// Requests that have not arrived whole.
    pub unfinished_max: u64,
    pub unfinished_per_address_max: u64,
    pub unfinished_per_connection_max: u64,
    /// Bytes of requests, from their arrival to the end of their answers.
    pub bytes_max: u64,
    pub bytes_per_address_max: u64,
    pub bytes_per_connection_max: u64,
    /// Bytes of answers that clients have not read.
    pub unwritten_bytes_max: u64,
    pub unwritten_bytes_per_address_max: u64,
    pub unwritten_bytes_per_connection_max: u64,
}

impl Default for ConnectionsConfig {
    fn default() -> ConnectionsConfig {
        ConnectionsConfig {
            max: 0,
            idle_max: 8_192,
            idle_per_address_max: 2_048,
            first_request_ms: 10_000,
            idle_ms: 300_000,
            request_ms: 10_000,
            unfinished_max: 8_192,
            unfinished_per_address_max: 2_048,
            unfinished_per_connection_max: 1_024,
            bytes_max: 256 * MIB,
            bytes_per_address_max: 64 * MIB,
            bytes_per_connection_max: 16 * MIB,
            unwritten_bytes_max: 256 * MIB,
            unwritten_bytes_per_address_max: 64 * MIB,
            unwritten_bytes_per_connection_max: 4 * MIB,
        }
    }
}

impl ConnectionsConfig {
    pub(super) fn check(&self) -> Result<(), CheckError> {
        const COUNT_MAX: u64 = 10_000_000;
        const BYTES_MAX: u64 = 1024 * 1024 * MIB;
        const HOUR_MS: u64 = 3_600_000;
        in_range("connections.max", self.max, 0..=COUNT_MAX)?;
        for (key, value) in [
            ("connections.idle_max", self.idle_max),
            ("connections.idle_per_address_max", self.idle_per_address_max),
            ("connections.unfinished_max", self.unfinished_max),
            ("connections.unfinished_per_address_max", self.unfinished_per_address_max),
            ("connections.unfinished_per_connection_max", self.unfinished_per_connection_max),
        ] {
            in_range(key, value, 1..=COUNT_MAX)?;
        }
        in_range("connections.first_request_ms", self.first_request_ms, 100..=ARRIVAL_MS_MAX)?;
        in_range("connections.request_ms", self.request_ms, 100..=ARRIVAL_MS_MAX)?;
        in_range("connections.idle_ms", self.idle_ms, 100..=24 * HOUR_MS)?;
        for (key, value) in [
            ("connections.bytes_max", self.bytes_max),
            ("connections.bytes_per_address_max", self.bytes_per_address_max),
            ("connections.bytes_per_connection_max", self.bytes_per_connection_max),
            ("connections.unwritten_bytes_max", self.unwritten_bytes_max),
            ("connections.unwritten_bytes_per_address_max", self.unwritten_bytes_per_address_max),
            (
                "connections.unwritten_bytes_per_connection_max",
                self.unwritten_bytes_per_connection_max,
            ),
        ] {
            in_range(key, value, 65_536..=BYTES_MAX)?;
        }
        Ok(())
    }
}
