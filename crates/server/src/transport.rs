//! What is below the protocols of a node's ports: TCP, with TLS or without.
//!
//! - A port either speaks TLS or does not. What comes in the other way is refused, with a reason.
//! - Handshakes happen on the runtime, and are limited ([`handshakes`]). The connection then goes to its owner: gRPC and
//!   HTTP stay on the runtime, framed connections and wires between nodes go to the shard as a [`ByteStream`].
//! - Certificates are loaded as a whole, and replaced as a whole by [`Transport::reload`].

mod byte_stream;
mod certificate_end;
mod handshakes;
mod peer_connector;
mod tls_stream;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use holdfast_replica::NodeId;
use holdfast_tls::{
    ALPN_FRAMED, ALPN_GRPC, ALPN_HTTP, CertificateName, Check, FileError, Identity,
    RemoteCertificate, Socket, Subject, TrustFiles, explain_any, load_identity, peer_client_config,
    peer_server_config, server_config,
};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

pub(crate) use self::byte_stream::ByteStream;
use self::certificate_end::{DAY, ShownCertificate};
use self::handshakes::Handshakes;
pub(crate) use self::peer_connector::PeerConnector;
use self::tls_stream::TlsStream;
use crate::config::NodeConfig;

/// The first byte of a handshake of TLS.
const TLS_HANDSHAKE: u8 = 0x16;

/// For the first message of a handshake; and for the rest, once it is answered.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the other end has to read why it is refused.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
const REFUSED_BYTES_MAX: u64 = 64 * 1024;

/// Why a node's certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("[{table}] {error}")]
    File { table: &'static str, error: FileError },
    #[error(
        "[{table}] {path} is the certificate {found}; this is node {node} of cluster '{cluster}': issue one with \
         `holdfast cert node --id {node}`",
        path = path.display()
    )]
    OtherName { table: &'static str, path: PathBuf, found: String, node: u64, cluster: String },
    #[error("[{table}] the certificate cannot be used: {error}")]
    Unusable { table: &'static str, error: rustls::Error },
    #[error(
        "[{table}] was {}; a port changes between plaintext and TLS when the node is restarted, not by SIGHUP",
        if *is_now_there { "added" } else { "removed" }
    )]
    NeedsRestart { table: &'static str, is_now_there: bool },
}

const CLIENTS: &str = "tls";
const PEERS: &str = "peer_tls";

/// How the ports of a node are protected. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transport(Arc<Ports>);

#[derive(Debug, Default)]
struct Ports {
    clients: Option<watch::Sender<Arc<ClientSide>>>,
    peers: Option<watch::Sender<Arc<PeerSide>>>,
    of_clients: Handshakes,
    /// Apart, so that clients cannot keep the nodes from each other.
    of_peers: Handshakes,
}

/// For the client port and the HTTP port.
#[derive(Debug)]
pub(crate) struct ClientSide {
    calls_and_frames: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    check: Option<Check>,
    certificate: ShownCertificate,
}

/// For the peer port, and for dialling other nodes.
#[derive(Debug)]
pub(crate) struct PeerSide {
    server: Arc<ServerConfig>,
    check: Check,
    identity: Identity,
    trust: TrustFiles,
    cluster: String,
    certificate: ShownCertificate,
}

/// What a new connection is.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// It speaks as the port does.
    Ready(Socket),
    /// It speaks plaintext, and the port TLS.
    Plaintext(TcpStream),
    /// It was refused, and is closed.
    Refused,
}

/// A port that clients and browsers dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientPort {
    CallsAndFrames,
    Http,
}

impl Transport {
    /// Reads and checks all files that the configuration names.
    pub(crate) fn load(config: &NodeConfig) -> Result<Transport, TlsError> {
        let clients = ClientSide::load(config)?.map(|side| watch::Sender::new(Arc::new(side)));
        let peers = PeerSide::load(config)?.map(|side| watch::Sender::new(Arc::new(side)));
        Ok(Transport(Arc::new(Ports { clients, peers, ..Ports::default() })))
    }

    /// Takes new files into use. If one of them is wrong, nothing changes.
    pub(crate) fn reload(&self, config: &NodeConfig) -> Result<(), TlsError> {
        let (clients, peers) = (ClientSide::load(config)?, PeerSide::load(config)?);
        is_as_before(CLIENTS, self.0.clients.is_some(), clients.is_some())?;
        is_as_before(PEERS, self.0.peers.is_some(), peers.is_some())?;
        if let (Some(now), Some(next)) = (&self.0.clients, clients) {
            now.send_replace(Arc::new(next));
        }
        if let (Some(now), Some(next)) = (&self.0.peers, peers) {
            now.send_replace(Arc::new(next));
        }
        Ok(())
    }

    pub(crate) fn has_certificates(&self) -> bool {
        self.0.clients.is_some() || self.0.peers.is_some()
    }

    /// When the certificate of the client port and the HTTP port ends, in seconds since 1970.
    pub(crate) fn client_certificate_ends(&self) -> Option<i64> {
        self.0.clients.as_ref().map(|side| side.borrow().certificate.ends_at_unix_s())
    }

    /// The same for the peer port.
    pub(crate) fn peer_certificate_ends(&self) -> Option<i64> {
        self.0.peers.as_ref().map(|side| side.borrow().certificate.ends_at_unix_s())
    }

    /// Logs a warning for each certificate that ends soon: at once, after a reload, and once a day. Runs until the node
    /// stops.
    pub(crate) async fn keep_warning_of_ends(self) {
        let log = |warning: String| tracing::warn!("{warning}");
        let clients = async {
            let Some(side) = self.watch_clients() else { return };
            certificate_end::keep_warning(side, |side| &side.certificate, DAY, log).await;
        };
        let peers = async {
            let Some(side) = self.watch_peers() else { return };
            certificate_end::keep_warning(side, |side| &side.certificate, DAY, log).await;
        };
        tokio::join!(clients, peers);
    }

    /// None if the client port speaks plaintext.
    pub(crate) fn watch_clients(&self) -> Option<watch::Receiver<Arc<ClientSide>>> {
        self.0.clients.as_ref().map(watch::Sender::subscribe)
    }

    /// None if the peer port speaks plaintext.
    pub(crate) fn watch_peers(&self) -> Option<watch::Receiver<Arc<PeerSide>>> {
        self.0.peers.as_ref().map(watch::Sender::subscribe)
    }

    /// Waits for the first byte, and makes the handshake.
    pub(crate) async fn accept_client(
        &self,
        port: ClientPort,
        socket: TcpStream,
        address: IpAddr,
    ) -> io::Result<Accepted> {
        let config = self.0.clients.as_ref().map(|side| {
            move || match port {
                ClientPort::CallsAndFrames => Arc::clone(&side.borrow().calls_and_frames),
                ClientPort::Http => Arc::clone(&side.borrow().http),
            }
        });
        let words = "this port speaks no TLS: the node's configuration has no [tls]\n";
        accept(config, &self.0.of_clients, socket, address, words).await
    }

    /// The same for a connection of another node.
    pub(crate) async fn accept_peer(
        &self,
        socket: TcpStream,
        address: IpAddr,
    ) -> io::Result<Accepted> {
        let config = self.0.peers.as_ref().map(|side| move || Arc::clone(&side.borrow().server));
        let words = "this peer port speaks no TLS: the node's configuration has no [peer_tls]\n";
        accept(config, &self.0.of_peers, socket, address, words).await
    }

    /// Returns when the certificate no longer counts, with the reason.
    pub(crate) async fn until_refused(&self, certificate: Option<RemoteCertificate>) -> String {
        const LOOK_EVERY: Duration = Duration::from_millis(500);
        let (Some(certificate), Some(mut side)) = (certificate, self.watch_peers()) else {
            return std::future::pending().await;
        };
        let mut pause = tokio::time::interval(LOOK_EVERY);
        // The files may have been replaced since the handshake began.
        let mut is_reloaded = true;
        loop {
            if is_reloaded || certificate.is_over(time::OffsetDateTime::now_utc()) {
                let side = Arc::clone(&side.borrow_and_update());
                if let Err(why) = side.accepts(&certificate) {
                    return why;
                }
            }
            is_reloaded = tokio::select! {
                _ = pause.tick() => false,
                changed = side.changed() => changed.is_ok(),
            };
        }
    }
}

/// What speaks TLS to a port without it is told the words.
async fn accept(
    config: Option<impl Fn() -> Arc<ServerConfig>>,
    handshakes: &Handshakes,
    socket: TcpStream,
    address: IpAddr,
    words: &str,
) -> io::Result<Accepted> {
    let mut first = [0];
    if socket.peek(&mut first).await? == 0 {
        // It has gone again.
        return Ok(Accepted::Refused);
    }
    let is_tls = first[0] == TLS_HANDSHAKE;
    match (config, is_tls) {
        (None, false) => Ok(Accepted::Ready(Socket::Plain(socket))),
        (Some(_), false) => {
            handshakes.note_refusal(address, "it speaks plaintext, and this port TLS");
            Ok(Accepted::Plaintext(socket))
        }
        (None, true) => {
            handshakes.note_refusal(address, "it speaks TLS, and this port plaintext");
            refuse_with(socket, words.as_bytes()).await;
            Ok(Accepted::Refused)
        }
        (Some(config), true) => {
            let handshake = async {
                let hello = timeout(HANDSHAKE_TIMEOUT, holdfast_tls::receive_hello(socket)).await?;
                let answered = {
                    // A turn is for work: it does not last while the client does its own part.
                    let _turn = handshakes.begin(address).await;
                    hello.and_then(|hello| {
                        // A client that waited too long for its turn has gone, and comes again.
                        let has_gone = has_gone(hello.tcp());
                        if has_gone {
                            Err(io::ErrorKind::UnexpectedEof.into())
                        } else {
                            Ok(hello.answer(config()))
                        }
                    })
                };
                timeout(HANDSHAKE_TIMEOUT, async { answered?.finish().await }).await
            };
            match handshake.await {
                Ok(Ok(socket)) if socket.has_nameless_certificate() => {
                    handshakes.note_refusal(address, "its certificate gives no name of Holdfast");
                    Ok(Accepted::Refused)
                }
                Ok(Ok(socket)) => Ok(Accepted::Ready(socket)),
                Ok(Err(error)) => {
                    let why = explain_any(&error).unwrap_or_else(|| error.to_string());
                    handshakes.note_refusal(address, &why);
                    Ok(Accepted::Refused)
                }
                Err(_) => {
                    handshakes.note_refusal(address, "its handshake took too long");
                    Ok(Accepted::Refused)
                }
            }
        }
    }
}

/// Whether the other end has closed, as far as the system has said so.
fn has_gone(socket: &TcpStream) -> bool {
    let mut next = [0];
    let mut context = Context::from_waker(Waker::noop());
    let peeked = socket.poll_peek(&mut context, &mut ReadBuf::new(&mut next));
    matches!(peeked, Poll::Ready(Ok(0) | Err(_)))
}

/// Says something to an end that is not let in. To close a socket from which not all was read would take back what was
/// written.
pub(crate) async fn refuse_with(mut socket: TcpStream, words: &[u8]) {
    let refusing = async {
        socket.write_all(words).await?;
        socket.shutdown().await?;
        tokio::io::copy(&mut (&mut socket).take(REFUSED_BYTES_MAX), &mut tokio::io::sink()).await
    };
    // It may have gone already.
    let _ = timeout(REFUSAL_TIMEOUT, refusing).await;
}

fn is_as_before(table: &'static str, was: bool, is_now_there: bool) -> Result<(), TlsError> {
    if was == is_now_there { Ok(()) } else { Err(TlsError::NeedsRestart { table, is_now_there }) }
}

impl ClientSide {
    fn load(config: &NodeConfig) -> Result<Option<ClientSide>, TlsError> {
        let Some(tls) = &config.tls else { return Ok(None) };
        let file = |error| TlsError::File { table: CLIENTS, error };
        let identity = load_identity(&tls.cert, &tls.key).map_err(file)?;
        // One without a name of ours is for clients that compare the host.
        if let Some(name) = &identity.details.name {
            is_of_this_node(CLIENTS, config, &tls.cert, name)?;
        }
        let load = |ca: &PathBuf| TrustFiles::load(ca, tls.crl.as_deref());
        let trust = tls.client_ca.as_ref().map(load).transpose().map_err(file)?;
        let unusable = |error| TlsError::Unusable { table: CLIENTS, error };
        let server = |protocols: &[&[u8]]| {
            server_config(&identity, &config.cluster, trust.clone(), protocols)
                .map(Arc::new)
                .map_err(unusable)
        };
        Ok(Some(ClientSide {
            calls_and_frames: server(&[ALPN_GRPC, ALPN_FRAMED])?,
            http: server(&[ALPN_HTTP])?,
            check: trust.clone().map(|trust| Check::clients(&config.cluster, trust)),
            certificate: ShownCertificate::new(CLIENTS, config, &tls.cert, &identity),
        }))
    }

    /// Whether the certificate of a connection still counts.
    pub(crate) fn accepts(&self, certificate: &RemoteCertificate) -> bool {
        self.check.as_ref().is_some_and(|check| certificate.check_again(check).is_ok())
    }
}

impl PeerSide {
    fn load(config: &NodeConfig) -> Result<Option<PeerSide>, TlsError> {
        let Some(tls) = &config.peer_tls else { return Ok(None) };
        let file = |error| TlsError::File { table: PEERS, error };
        let identity = load_identity(&tls.cert, &tls.key).map_err(file)?;
        match &identity.details.name {
            Some(name) => is_of_this_node(PEERS, config, &tls.cert, name)?,
            None => {
                let found = identity.details.common_name.clone();
                return Err(other_name(PEERS, config, &tls.cert, found));
            }
        }
        let trust = TrustFiles::load(&tls.ca, tls.crl.as_deref()).map_err(file)?;
        let unusable = |error| TlsError::Unusable { table: PEERS, error };
        let server =
            peer_server_config(&identity, &config.cluster, trust.clone()).map_err(unusable)?;
        let check = Check::nodes(&config.cluster, trust.clone());
        let (server, cluster) = (Arc::new(server), config.cluster.clone());
        let certificate = ShownCertificate::new(PEERS, config, &tls.cert, &identity);
        Ok(Some(PeerSide { server, check, identity, trust, cluster, certificate }))
    }

    /// Whether the certificate of a connection counts now. If not, the words say why.
    pub(crate) fn accepts(&self, certificate: &RemoteCertificate) -> Result<(), String> {
        certificate.check_again(&self.check).map_err(|error| holdfast_tls::explain(&error))
    }

    /// For dialling this node, and no other.
    fn dialling(&self, node: NodeId, protocol: &[u8]) -> Result<Arc<ClientConfig>, rustls::Error> {
        let (identity, trust) = (&self.identity, self.trust.clone());
        peer_client_config(identity, &self.cluster, node.0, trust, protocol).map(Arc::new)
    }
}

fn is_of_this_node(
    table: &'static str,
    config: &NodeConfig,
    path: &std::path::Path,
    name: &CertificateName,
) -> Result<(), TlsError> {
    if name.cluster() == config.cluster && *name.subject() == Subject::Node(config.node) {
        return Ok(());
    }
    Err(other_name(table, config, path, name.to_string()))
}

fn other_name(
    table: &'static str,
    config: &NodeConfig,
    path: &std::path::Path,
    found: String,
) -> TlsError {
    let (path, cluster) = (path.to_owned(), config.cluster.clone());
    TlsError::OtherName { table, path, found, node: config.node, cluster }
}

/// The runtime has nothing to do with the socket any more.
pub(crate) fn byte_stream(socket: Socket) -> io::Result<Box<dyn ByteStream>> {
    let (socket, tls) = socket.into_parts();
    let socket = mio::net::TcpStream::from_std(socket.into_std()?);
    Ok(match tls {
        None => Box::new(socket),
        Some(tls) => Box::new(TlsStream::new(socket, tls)),
    })
}

#[cfg(test)]
mod tests {
    use holdfast_tls::{Authority, Validity, Verify, client_config};
    use tokio::net::TcpListener;

    use super::*;

    /// Of a node, and of a client that knows its authority.
    pub(super) fn test_configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::create("test", Validity::AUTHORITY).unwrap();
        let issued = ca.issue_node(1, &[], Validity::LEAF).unwrap();
        let write = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            path
        };
        let cert = write("node.pem", &issued.certificate_pem);
        let identity = load_identity(&cert, &write("key.pem", &issued.key_pem)).unwrap();
        let trust = TrustFiles::load(&write("ca.pem", ca.certificate_pem()), None).unwrap();
        let server = server_config(&identity, "test", None, &[]).unwrap();
        let verify = Verify::Cluster("test".to_owned());
        let client = client_config(verify, trust, None, &[]).unwrap();
        (Arc::new(server), Arc::new(client))
    }

    #[tokio::test]
    async fn clients_that_do_not_finish_their_handshakes_hold_up_no_other_of_their_address() {
        let (server, client) = test_configs();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let handshakes = Handshakes::default();
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let mut silent = TcpStream::connect(address).await.unwrap();
            let name = "localhost".try_into().unwrap();
            let mut hello = Vec::new();
            rustls::ClientConnection::new(Arc::clone(&client), name)
                .unwrap()
                .write_tls(&mut hello)
                .unwrap();
            silent.write_all(&hello).await.unwrap();
            let (socket, from) = listener.accept().await.unwrap();
            let (server, handshakes) = (Arc::clone(&server), handshakes.clone());
            let config = move || Arc::clone(&server);
            let accepting = tokio::spawn(async move {
                accept(Some(config), &handshakes, socket, from.ip(), "").await
            });
            // It has its answer, and says no more.
            silent.readable().await.unwrap();
            waiting.push((silent, accepting));
        }
        let socket = TcpStream::connect(address).await.unwrap();
        let connecting = holdfast_tls::connect(client, "localhost:1", socket);
        let (socket, from) = listener.accept().await.unwrap();
        let config = || Arc::clone(&server);
        let accepting = accept(Some(config), &handshakes, socket, from.ip(), "");
        let (connected, accepted) = tokio::join!(connecting, accepting);
        connected.unwrap();
        assert!(matches!(accepted.unwrap(), Accepted::Ready(_)));
    }

    #[tokio::test]
    async fn a_client_that_went_while_it_waited_for_its_handshake_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        assert!(!has_gone(&socket));
        drop(client);
        let gone = async {
            while !has_gone(&socket) {
                tokio::task::yield_now().await;
            }
        };
        timeout(HANDSHAKE_TIMEOUT, gone).await.expect("it is noticed");
    }
}
