//! Where spans go, as the environment of every program says it.

use std::path::PathBuf;

use holdfast_server::OutgoingTlsConfig;

pub(crate) const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const CA: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const CERT: &str = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
const KEY: &str = "OTEL_EXPORTER_OTLP_CLIENT_KEY";

/// What is set, and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// How a receiver is known that is reached by TLS. The file of a node goes behind the environment.
pub(crate) fn tls(endpoint: &str, of_file: Option<OutgoingTlsConfig>) -> Option<OutgoingTlsConfig> {
    if !holdfast_spans::is_encrypted(endpoint) {
        return None;
    }
    let file = |name| variable(name).map(PathBuf::from);
    match file(CA) {
        Some(ca) => Some(OutgoingTlsConfig { ca, cert: file(CERT), key: file(KEY) }),
        None => of_file,
    }
}
