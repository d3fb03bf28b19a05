//! The certificates of a node's ports: `[tls]` for clients and browsers, `[peer_tls]` for the other nodes.
//!
//! The files are read when the node starts, and again on SIGHUP.

use std::path::PathBuf;

use serde::Deserialize;

/// The client port and the HTTP port speak TLS.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The node's certificate, with those between it and its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of clients' certificates. Without it clients show none.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// Clients' certificates that no longer count.
    #[serde(default)]
    pub crl: Option<PathBuf>,
}

/// The peer port speaks TLS, and both sides show a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerTlsConfig {
    /// The node's certificate: `holdfast://CLUSTER/node/ID`.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of the nodes' certificates.
    pub ca: PathBuf,
    /// Nodes' certificates that no longer count.
    #[serde(default)]
    pub crl: Option<PathBuf>,
}
