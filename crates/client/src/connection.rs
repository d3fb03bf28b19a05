//! One connection to one node, tuned so that a silent peer is noticed within seconds.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use holdfast_client_core::connect_errors::Contact;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_tls::{Socket, explain_any};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tonic::codegen::http::Uri;
use tonic::codegen::{InterceptedService, Service};
use tonic::transport::{Channel, Endpoint};

use crate::auth_file::{AuthFile, AuthFileError, ShowToken};
use crate::tls::{Loaded, Tls, TlsError};

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);
pub(crate) const NO_CONNECTION: &str = "no connection within a second";

/// More than the 16 MiB that a node sends at most. A frame that is not taken would be sent again on
/// every new stream.
pub(crate) const RESPONSE_BYTES_MAX: usize = 17 * 1024 * 1024;

/// A connection to a node. Each call on it shows the client's token, if it has one.
pub type NodeChannel = InterceptedService<Channel, ShowToken>;

/// How nodes are reached: with TLS or without, with a token or without.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transport {
    tls: Option<Arc<Loaded>>,
    auth_file: Option<Arc<AuthFile>>,
}

impl Transport {
    /// Reads the files. The TTL is that of the client's sessions.
    pub(crate) fn with_tls(self, tls: Tls, ttl: Duration) -> Result<Transport, TlsError> {
        Ok(Transport { tls: Some(Arc::new(Loaded::new(tls, ttl)?)), ..self })
    }

    /// Reads the file.
    pub(crate) fn with_auth_file(self, path: PathBuf) -> Result<Transport, AuthFileError> {
        Ok(Transport { auth_file: Some(Arc::new(AuthFile::load(path)?)), ..self })
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref().map(|loaded| &loaded.tls)
    }

    pub(crate) fn auth_file(&self) -> Option<&AuthFile> {
        self.auth_file.as_deref()
    }

    pub(crate) async fn connect(
        &self,
        address: &str,
    ) -> Result<LockServiceClient<NodeChannel>, tonic::transport::Error> {
        Ok(lock_service(self.open(address).await?))
    }

    pub(crate) async fn open(&self, address: &str) -> Result<NodeChannel, tonic::transport::Error> {
        let endpoint = endpoint(address)?;
        let channel = match self.connector(address) {
            None => endpoint.connect().await?,
            Some(connector) => endpoint.connect_with_connector(connector).await?,
        };
        Ok(self.showing_token(channel))
    }

    pub(crate) fn open_lazily(
        &self,
        address: &str,
    ) -> Result<NodeChannel, tonic::transport::Error> {
        let endpoint = endpoint(address)?;
        let channel = match self.connector(address) {
            None => endpoint.connect_lazy(),
            Some(connector) => endpoint.connect_with_connector_lazy(connector),
        };
        Ok(self.showing_token(channel))
    }

    fn showing_token(&self, channel: Channel) -> NodeChannel {
        InterceptedService::new(channel, ShowToken(self.auth_file.clone()))
    }

    fn connector(&self, address: &str) -> Option<TlsConnector> {
        let config = self.tls.as_ref()?.configs().calls;
        Some(TlsConnector { config, address: address.to_owned() })
    }

    /// For frames without HTTP/2.
    pub(crate) async fn open_framed(&self, address: &str) -> io::Result<Socket> {
        let socket = dial(address).await?;
        match &self.tls {
            None => Ok(Socket::Plain(socket)),
            Some(loaded) => loaded.handshake(address, socket).await,
        }
    }

    /// How long a node may take to greet. None: a peer that takes longer may be waiting for HTTP. With TLS, both ends have
    /// named the protocol in the handshake.
    pub(crate) fn greeting_patience(&self) -> Option<Duration> {
        self.tls.as_ref().map(|loaded| loaded.patience())
    }
}

fn endpoint(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}

pub(crate) fn lock_service(channel: NodeChannel) -> LockServiceClient<NodeChannel> {
    LockServiceClient::new(channel).max_decoding_message_size(RESPONSE_BYTES_MAX)
}

/// A name can have several addresses, and the first may be one that does not answer: each has its share of the time.
async fn dial(address: &str) -> io::Result<TcpStream> {
    let found = timeout(CONNECT_TIMEOUT, lookup_host(address)).await.map_err(|_| no_answer())??;
    let found: Vec<SocketAddr> = found.collect();
    let patience = CONNECT_TIMEOUT / u32::try_from(found.len()).unwrap_or(u32::MAX).max(1);
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in found {
        match timeout(patience, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = no_answer(),
        }
    }
    Err(failure)
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, NO_CONNECTION)
}

/// Why there is no connection, and how far it got.
pub(crate) fn why_not(error: &(dyn Error + 'static)) -> (Contact, String) {
    match explain_any(error) {
        Some(words) => (Contact::Denied, words),
        None if is_refusal(error) || is_unknown_name(error) => {
            (Contact::Refused, innermost_cause(error))
        }
        None => (Contact::NotMade, innermost_cause(error)),
    }
}

/// Nothing listens there.
fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (**error).source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The name has no address, or the resolver cannot tell. The standard library has no kind for that, only these words.
fn is_unknown_name(error: &(dyn Error + 'static)) -> bool {
    const WORDS: &str = "failed to lookup address information";
    std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (**error).source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.to_string().starts_with(WORDS))
}

/// The innermost cause: the outer ones only say "transport error".
fn innermost_cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// For gRPC to one node.
struct TlsConnector {
    config: Arc<ClientConfig>,
    address: String,
}

impl Service<Uri> for TlsConnector {
    type Response = TokioIo<Socket>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Socket>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (config, address) = (Arc::clone(&self.config), self.address.clone());
        Box::pin(async move {
            let socket = dial(&address).await?;
            let mut socket = holdfast_tls::connect(config, &address, socket).await?;
            socket.until_accepted().await?;
            Ok(TokioIo::new(socket))
        })
    }
}
