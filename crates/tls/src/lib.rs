//! Transport security: certificates of a cluster, and the two ends of a TLS 1.3 connection.
//!
//! A certificate says what it is for in a URI: `holdfast://CLUSTER/node/3` or `holdfast://CLUSTER/client/billing`. Both
//! ends compare that URI, so a certificate holds wherever its node moves. A node's certificate is no client's, and a
//! client's is no node's.
//!
//! This crate starts no threads and opens no connections: it makes both ends of a connection that its caller has opened.
//! It reads files only where its caller names them.

#![forbid(unsafe_code)]

mod authority;
mod certificate_name;
mod client_side;
mod details;
mod explain;
mod files;
mod peer_side;
#[cfg(feature = "planted")]
pub mod planted;
mod remote;
mod server_side;
mod signature;
mod socket;
#[cfg(test)]
mod tests;
mod verify;

pub use authority::{Authority, AuthorityError, Issued, Validity};
pub use certificate_name::{CertificateName, CertificateNameError, Subject};
pub use client_side::{Verify, client_config};
pub use details::{Details, DetailsError};
pub use explain::{explain, explain_any};
pub use files::{FileError, Identity, TrustFiles, load_identity};
pub use peer_side::{peer_client_config, peer_server_config};
pub use remote::RemoteCertificate;
pub use server_side::server_config;
pub use socket::{AnsweredHello, ReceivedHello, Socket, connect, receive_hello};
pub use verify::{Check, name_in};

/// gRPC.
pub const ALPN_GRPC: &[u8] = b"h2";
/// Framed connections.
pub const ALPN_FRAMED: &[u8] = b"holdfast/1";
/// The HTTP port.
pub const ALPN_HTTP: &[u8] = b"http/1.1";
/// The wire between two nodes. Their calls are gRPC.
pub const ALPN_PEER: &[u8] = b"holdfast-peer/1";
