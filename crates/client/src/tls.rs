//! TLS to the nodes: which authority signs their certificates, and which certificate this client shows.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_client_core::backoff::HandshakePatience;
use holdfast_tls::{
    ALPN_FRAMED, ALPN_GRPC, Details, DetailsError, FileError, Socket, TrustFiles, Verify,
    client_config, load_identity,
};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A client that connects again takes certificates into use that were replaced meanwhile.
const LOADED_FOR: Duration = Duration::from_secs(1);
const NO_HANDSHAKE: &str =
    "the node is reached, and does not end the TLS handshake: it may have many to make";

/// How a client reaches a cluster whose client ports speak TLS. Such a client never speaks plaintext.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    ca: PathBuf,
    identity: Option<(PathBuf, PathBuf)>,
    verifies_host: bool,
}

/// Why the files of a client cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    #[error("{0}")]
    File(String),
    #[error(
        "{} does not say of which cluster it is: use the authority that `holdfast cert ca` made, or compare the host \
         (verify = \"host\")", ca.display()
    )]
    NoCluster { ca: PathBuf },
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
}

impl Tls {
    /// Trusts nodes whose certificate is signed by an authority in this file, and is for a node of its cluster.
    pub fn new(ca: impl Into<PathBuf>) -> Tls {
        Tls { ca: ca.into(), identity: None, verifies_host: false }
    }

    /// Shows this certificate, whose private key is in the second file.
    #[must_use]
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Tls {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Trusts nodes whose certificate is for the host that is dialled, instead of comparing the cluster.
    #[must_use]
    pub fn verify_host(mut self) -> Tls {
        self.verifies_host = true;
        self
    }

    /// For a process with another working directory. None if the system does not tell ours.
    pub(crate) fn absolute(&self) -> Option<Tls> {
        let absolute = |path: &PathBuf| std::path::absolute(path).ok();
        let identity = match &self.identity {
            Some((certificate, key)) => Some((absolute(certificate)?, absolute(key)?)),
            None => None,
        };
        Some(Tls { ca: absolute(&self.ca)?, identity, verifies_host: self.verifies_host })
    }

    pub(crate) fn ca(&self) -> &PathBuf {
        &self.ca
    }

    pub(crate) fn identity(&self) -> Option<&(PathBuf, PathBuf)> {
        self.identity.as_ref()
    }

    pub(crate) fn verifies_host(&self) -> bool {
        self.verifies_host
    }

    fn load(&self) -> Result<Configs, TlsError> {
        let file = |error: FileError| TlsError::File(error.to_string());
        let trust = TrustFiles::load(&self.ca, None).map_err(file)?;
        let identity = self.identity.as_ref();
        let identity = identity.map(|(certificate, key)| load_identity(certificate, key));
        let identity = identity.transpose().map_err(file)?;
        let verify = match self.verifies_host {
            true => Verify::Host,
            false => Verify::Cluster(self.cluster()?),
        };
        let config = |protocol: &[u8]| {
            client_config(verify.clone(), trust.clone(), identity.as_ref(), &[protocol])
                .map(Arc::new)
                .map_err(|error| TlsError::Unusable(error.to_string()))
        };
        let (calls, frames) = (config(ALPN_GRPC)?, config(ALPN_FRAMED)?);
        Ok(Configs { calls, frames, loaded_at: Instant::now() })
    }

    /// As the certificate of the authority says.
    fn cluster(&self) -> Result<String, TlsError> {
        let text = std::fs::read(&self.ca).map_err(|error| TlsError::File(error.to_string()))?;
        let damaged = |error: DetailsError| TlsError::File(error.to_string());
        let names = Details::of_all_pem(&text).map_err(damaged)?;
        let name = names.into_iter().find_map(|details| details.name);
        let name = name.ok_or_else(|| TlsError::NoCluster { ca: self.ca.clone() })?;
        Ok(name.cluster().to_owned())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Configs {
    pub(crate) calls: Arc<ClientConfig>,
    pub(crate) frames: Arc<ClientConfig>,
    loaded_at: Instant,
}

/// What was loaded last.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) tls: Tls,
    configs: Mutex<Configs>,
    patience: Mutex<HandshakePatience>,
}

impl Loaded {
    pub(crate) fn new(tls: Tls, ttl: Duration) -> Result<Loaded, TlsError> {
        let configs = Mutex::new(tls.load()?);
        let patience = Mutex::new(HandshakePatience::new(ttl));
        Ok(Loaded { tls, configs, patience })
    }

    /// Makes the handshake for frames without HTTP/2.
    pub(crate) async fn handshake(&self, address: &str, socket: TcpStream) -> io::Result<Socket> {
        let connecting = holdfast_tls::connect(self.configs().frames, address, socket);
        let patience = self.patience();
        let connected = timeout(patience, connecting).await;
        self.lock_patience().note(connected.is_err());
        connected.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, NO_HANDSHAKE))?
    }

    /// How long a node may take over a handshake.
    pub(crate) fn patience(&self) -> Duration {
        self.lock_patience().duration()
    }

    fn lock_patience(&self) -> MutexGuard<'_, HandshakePatience> {
        self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As the files say now. If they are wrong, those that were loaded before stay in use.
    pub(crate) fn configs(&self) -> Configs {
        let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        if configs.loaded_at.elapsed() >= LOADED_FOR {
            match self.tls.load() {
                Ok(loaded) => *configs = loaded,
                Err(error) => {
                    tracing::warn!("the certificates loaded before stay in use: {error}");
                    configs.loaded_at = Instant::now();
                }
            }
        }
        configs.clone()
    }
}
