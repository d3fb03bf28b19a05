//! What a node demands of its callers, by its configuration; and how a new cluster gets its first administrator.
//!
//! A node that demands credentials writes a token into `<data_dir>/bootstrap` when it first starts. Until the policy is
//! changed for the first time, that token is an administrator's. From then on it is nothing.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_proto::AccessToken;
use holdfast_service::{AuthMode, Service};

use crate::config::NodeConfig;
use crate::durable_file::{self, FileError};

const BOOTSTRAP_FILE: &str = "bootstrap";

#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the operating system gives no random numbers: {0}")]
    Random(getrandom::Error),
    #[error("{} has no token: remove it and start the node again", path.display())]
    NotAToken { path: PathBuf },
    #[error(
        "there is no file {}: start the node with auth.mode = \"required\" or \"permissive\" first",
        path.display()
    )]
    Missing { path: PathBuf },
}

/// The service, as the configuration wants it.
pub(crate) fn service(service: Service, config: &NodeConfig) -> Result<Service, BootstrapError> {
    let mode = config.auth.mode;
    let service = service.with_mode(mode).denials_observed_by(Arc::new(move |caller, method, failure| {
        let (principal, address) = (&caller.on_behalf_of, caller.address);
        let reason = failure.reason().wire_name();
        if mode == AuthMode::Required {
            tracing::warn!(%principal, ?address, ?method, %reason, "denied");
        } else {
            tracing::warn!(%principal, ?address, ?method, %reason, "would be denied if auth.mode were required");
        }
    }));
    if mode == AuthMode::Off {
        return Ok(service);
    }
    let path = config.data_dir.join(BOOTSTRAP_FILE);
    let token = match durable_file::read(&path)? {
        Some(text) => text.trim().parse::<AccessToken>().ok(),
        None => {
            let token = AccessToken::random().map_err(BootstrapError::Random)?;
            write_secret(&path, &format!("{}\n", token.to_secret_text()))?;
            tracing::info!(path = %path.display(), "wrote the token for the first administrator");
            Some(token)
        }
    };
    Ok(match token {
        Some(token) => service.with_bootstrap(token.digest()),
        None => service,
    })
}

/// For its owner alone.
fn write_secret(path: &Path, text: &str) -> Result<(), FileError> {
    #[cfg(unix)]
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    let mut file = options.open(path).map_err(FileError::of("create", path))?;
    file.write_all(text.as_bytes()).map_err(FileError::of("write", path))?;
    file.sync_all().map_err(FileError::of("sync", path))
}

/// The token by which a new cluster gets its first administrator.
pub fn bootstrap_token(data_dir: &Path) -> Result<AccessToken, BootstrapError> {
    let path = data_dir.join(BOOTSTRAP_FILE);
    match durable_file::read(&path)? {
        None => Err(BootstrapError::Missing { path }),
        Some(text) => text.trim().parse().map_err(|_| BootstrapError::NotAToken { path }),
    }
}
