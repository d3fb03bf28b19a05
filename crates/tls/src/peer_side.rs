//! Both ends of a connection between two nodes. Each shows a certificate of a node of the cluster.

use std::sync::Arc;

use rustls::client::ClientConfig;
use rustls::server::ServerConfig;
use rustls::version::TLS13;

use crate::client_side::config;
use crate::files::{Identity, TrustFiles};
use crate::server_side::without_resumption;
use crate::verify::{Verifier, Wanted};
use crate::{ALPN_GRPC, ALPN_PEER};

/// The end that was dialled. Which node dialled, [`name_in`](crate::name_in) says.
pub fn peer_server_config(
    node: &Identity,
    cluster: &str,
    trust: TrustFiles,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let wanted = Wanted::Node { cluster: cluster.to_owned() };
    let verifier = Verifier { wanted, trust, provider: Arc::clone(&provider), optional: false };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(node.chain.clone(), node.key())?;
    config.alpn_protocols = vec![ALPN_GRPC.to_vec(), ALPN_PEER.to_vec()];
    without_resumption(&mut config);
    Ok(config)
}

/// The end that dials node `id`, and wants no other.
pub fn peer_client_config(
    node: &Identity,
    cluster: &str,
    id: u64,
    trust: TrustFiles,
    protocol: &[u8],
) -> Result<ClientConfig, rustls::Error> {
    let wanted = Wanted::OneNode { cluster: cluster.to_owned(), id };
    config(wanted, trust, Some(node), &[protocol])
}
