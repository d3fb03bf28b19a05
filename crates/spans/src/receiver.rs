//! A receiver of spans that is reached by TLS.
//!
//! The receiver reads the files for each connection, so it uses new ones as soon as a connection breaks. It logs a
//! connection that fails, because the exporter does not.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use holdfast_tls::{
    ALPN_GRPC, FileError, Socket, TrustFiles, Verify, client_config, explain_any, load_identity,
};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

const SCHEME: &str = "https://";
/// The usual port of OTLP over gRPC.
const PORT: u16 = 4317;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same failure is told once in this time.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Who signs the receiver's certificate, and what is shown to the receiver. The certificate has to be for the host of the
/// endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverTls {
    ca: PathBuf,
    /// Certificate and key.
    identity: Option<(PathBuf, PathBuf)>,
}

/// Whether the endpoint is to be reached by TLS.
pub fn is_encrypted(endpoint: &str) -> bool {
    endpoint.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// Why there can be no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiverError {
    #[error("{0}")]
    Endpoint(#[from] tonic::transport::Error),
    #[error("it names no host: write it as https://host:port")]
    NoHost,
    #[error(
        "nothing says which authority signs the receiver's certificate: name its file with ca in [tracing.tls], or with \
         OTEL_EXPORTER_OTLP_CERTIFICATE"
    )]
    NoAuthority,
    #[error("{0}")]
    File(#[from] FileError),
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

impl ReceiverTls {
    pub fn new(ca: &Path, identity: Option<(&Path, &Path)>) -> ReceiverTls {
        let identity = identity.map(|(cert, key)| (cert.to_owned(), key.to_owned()));
        ReceiverTls { ca: ca.to_owned(), identity }
    }

    fn load(&self) -> Result<Arc<ClientConfig>, ReceiverError> {
        let trust = TrustFiles::load(&self.ca, None)?;
        let identity = self.identity.as_ref().map(|(cert, key)| load_identity(cert, key));
        let identity = identity.transpose()?;
        Ok(Arc::new(client_config(Verify::Host, trust, identity.as_ref(), &[ALPN_GRPC])?))
    }
}

/// A channel that dials when it is needed. The files are read once now, so that wrong ones are told at the start.
pub(crate) fn channel(endpoint: &str, tls: Option<ReceiverTls>) -> Result<Channel, ReceiverError> {
    let tls = tls.ok_or(ReceiverError::NoAuthority)?;
    tls.load()?;
    let origin = Endpoint::from_shared(endpoint.to_owned())?;
    let host = origin.uri().host().filter(|host| !host.is_empty()).ok_or(ReceiverError::NoHost)?;
    let port = origin.uri().port_u16().unwrap_or(PORT);
    let address = format!("{host}:{port}");
    // With https the channel would want to make the handshake itself.
    let dialled = Endpoint::from_shared(format!("http://{address}"))?.origin(origin.uri().clone());
    let (told, endpoint) = (Arc::default(), endpoint.to_owned());
    Ok(dialled.connect_with_connector_lazy(Connector { tls, address, endpoint, told }))
}

#[derive(Clone)]
struct Connector {
    tls: ReceiverTls,
    address: String,
    endpoint: String,
    told: Arc<Mutex<Option<(String, Instant)>>>,
}

impl Connector {
    async fn dial(&self) -> io::Result<Socket> {
        let dialling = async {
            let config = self.tls.load().map_err(io::Error::other)?;
            let socket = TcpStream::connect(&self.address).await?;
            socket.set_nodelay(true)?;
            let mut socket = holdfast_tls::connect(config, &self.address, socket).await?;
            socket.until_accepted().await?;
            Ok(socket)
        };
        let too_late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
        timeout(CONNECT_TIMEOUT, dialling).await.unwrap_or_else(too_late)
    }

    fn tell(&self, error: &io::Error) {
        let reason = explain_any(error).unwrap_or_else(|| error.to_string());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = told
            .as_ref()
            .is_some_and(|(known, when)| *known == reason && when.elapsed() < TOLD_EVERY);
        if !is_known {
            tracing::warn!(endpoint = self.endpoint, reason, "spans are not received");
            *told = Some((reason, Instant::now()));
        }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Socket>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Socket>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let dialled = connector.dial().await;
            dialled.inspect_err(|error| connector.tell(error)).map(TokioIo::new)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_encrypted() {
        for endpoint in ["https://c:4317", "HTTPS://c"] {
            assert!(is_encrypted(endpoint), "{endpoint}");
        }
        for endpoint in ["http://c:4317", "c:4317", "https:", ""] {
            assert!(!is_encrypted(endpoint), "{endpoint}");
        }
    }

    #[test]
    fn wrong_files_are_told_at_the_start() {
        let missing = ReceiverTls::new(Path::new("/nowhere/ca.pem"), None);
        let error = channel("https://c:4317", Some(missing)).unwrap_err().to_string();
        assert!(error.contains("/nowhere/ca.pem"), "{error}");
        let error = channel("https://c:4317", None).unwrap_err().to_string();
        assert!(error.contains("OTEL_EXPORTER_OTLP_CERTIFICATE"), "{error}");
    }
}
