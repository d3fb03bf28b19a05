//! A node's end of a client's connection.

use std::sync::Arc;

use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::version::TLS13;

use crate::files::{Identity, TrustFiles};
use crate::verify::{Verifier, Wanted};

/// For the client port and the HTTP port. Without `clients` no certificate is asked for; with them a client may show one,
/// which then must be good. A client without one proves by other means who it is.
pub fn server_config(
    node: &Identity,
    cluster: &str,
    clients: Option<TrustFiles>,
    protocols: &[&[u8]],
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(trust) => {
            let wanted = Wanted::Client { cluster: cluster.to_owned() };
            let verifier = Verifier { wanted, trust, provider, optional: true };
            builder.with_client_cert_verifier(Arc::new(verifier))
        }
    };
    let mut config = builder.with_single_cert(node.chain.clone(), node.key())?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    without_resumption(&mut config);
    Ok(config)
}

/// A resumed connection would skip the check of the certificate, which may be over or revoked meanwhile.
pub(crate) fn without_resumption(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}
