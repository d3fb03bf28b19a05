//! TLS towards a server that is not a node: `[kafka.tls]`, `[tracing.tls]`.
//!
//! The files are read when the node starts, and again for each connection.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::check_error::CheckError;

/// The server's certificate has to be for the host that is dialled.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutgoingTlsConfig {
    /// The authorities of the server's certificate.
    pub ca: PathBuf,
    /// The certificate that the node shows, if the server wants one.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// Its private key.
    #[serde(default)]
    pub key: Option<PathBuf>,
}

impl OutgoingTlsConfig {
    pub(super) fn check(&self, table: &'static str) -> Result<(), CheckError> {
        let half = |given, missing| Err(CheckError::HalfIdentity { table, given, missing });
        match (&self.cert, &self.key) {
            (Some(_), None) => half("cert", "key"),
            (None, Some(_)) => half("key", "cert"),
            (Some(_), Some(_)) | (None, None) => Ok(()),
        }
    }

    /// Certificate and key.
    pub fn identity(&self) -> Option<(&Path, &Path)> {
        Some((self.cert.as_deref()?, self.key.as_deref()?))
    }
}
