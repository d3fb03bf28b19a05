//! `[tracing]`: where spans go, by OpenTelemetry's protocol over gRPC.

use serde::Deserialize;

use super::OutgoingTlsConfig;
use super::check_error::CheckError;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracingConfig {
    /// Such as `http://127.0.0.1:4317`, or `https://collector:4317`.
    pub endpoint: String,
    /// How a receiver is known that is reached by TLS.
    #[serde(default)]
    pub tls: Option<OutgoingTlsConfig>,
}

impl TracingConfig {
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let endpoint = || self.endpoint.clone();
        match (&self.tls, holdfast_spans::is_encrypted(&self.endpoint)) {
            (None, true) => Err(CheckError::TracingWithoutCa { endpoint: endpoint() }),
            (Some(_), false) => Err(CheckError::TracingWithoutTls { endpoint: endpoint() }),
            (Some(tls), true) => tls.check("tracing.tls"),
            (None, false) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NodeConfig;

    fn with(tracing: &str) -> Result<NodeConfig, String> {
        let text = NodeConfig::EXAMPLE.replace("[[nodes]]\nid = 1", "{tracing}\n[[nodes]]\nid = 1");
        let config = NodeConfig::from_toml(&text.replace("{tracing}", tracing));
        config.map_err(|error| error.to_string())
    }

    #[test]
    fn an_endpoint_with_tls_needs_an_authority_and_one_without_takes_none() {
        let plain = "[tracing]\nendpoint = \"http://c:4317\"\n";
        let encrypted = "[tracing]\nendpoint = \"HTTPS://c:4317\"\n";
        let ca = "[tracing.tls]\nca = \"ca.pem\"\n";
        assert!(with(plain).is_ok());
        assert!(with(&format!("{encrypted}{ca}")).is_ok());
        for (settings, word) in [
            (encrypted.to_owned(), "ca in [tracing.tls]"),
            (format!("{plain}{ca}"), "write https://"),
            (format!("{encrypted}{ca}cert = \"c.pem\""), "tracing.tls.cert is given without"),
        ] {
            let error = with(&settings).unwrap_err();
            assert!(error.contains(word), "{settings}: {error}");
        }
    }
}
