//! A client's end of its connection to a node.

use std::sync::Arc;

use rustls::client::{ClientConfig, Resumption};
use rustls::version::TLS13;

use crate::files::{Identity, TrustFiles};
use crate::verify::{Verifier, Wanted};

/// How a client knows that it has reached the right server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verify {
    /// The certificate is that of a node of this cluster, wherever the node is.
    Cluster(String),
    /// The certificate is for the host that was dialled.
    Host,
}

/// For a connection to the client port. There is no way to trust everyone.
pub fn client_config(
    verify: Verify,
    trust: TrustFiles,
    client: Option<&Identity>,
    protocols: &[&[u8]],
) -> Result<ClientConfig, rustls::Error> {
    let wanted = match verify {
        Verify::Cluster(cluster) => Wanted::Node { cluster },
        Verify::Host => Wanted::Host,
    };
    config(wanted, trust, client, protocols)
}

pub(crate) fn config(
    wanted: Wanted,
    trust: TrustFiles,
    own: Option<&Identity>,
    protocols: &[&[u8]],
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier { wanted, trust, provider: Arc::clone(&provider), optional: false };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_auth_cert(own.chain.clone(), own.key())?,
    };
    config.resumption = Resumption::disabled();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}
