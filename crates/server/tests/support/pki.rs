//! The files of a cluster with TLS, and the ends that dial its ports.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_server::{NodeConfig, PeerTlsConfig, TlsConfig};
use holdfast_tls::{
    ALPN_FRAMED, ALPN_GRPC, Authority, Identity, Issued, Socket, TrustFiles, Validity, Verify,
    client_config, explain_any, load_identity, peer_client_config,
};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::codegen::Service as TowerService;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use super::framed::FramedClient;
use super::{Client, Cluster, PATIENCE};

pub(crate) const CLUSTER: &str = "dev";
/// Within which a refusal has to come.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);
/// The same for each single refusal, on a machine that has much to do.
pub(crate) const REFUSED_WITHIN_AT_LOAD: Duration = Duration::from_secs(5);
/// One of so many refusals has to come within [`REFUSED_WITHIN`].
const ATTEMPTS: usize = 3;

/// The files of a cluster.
pub(crate) struct Pki {
    dir: TempDir,
    pub(crate) ca: Authority,
}

impl Pki {
    pub(crate) fn new() -> Pki {
        let ca = Authority::create(CLUSTER, Validity::AUTHORITY).unwrap();
        let pki = Pki { dir: tempfile::tempdir().unwrap(), ca };
        pki.write("ca.pem", pki.ca.certificate_pem());
        for id in 1..=3 {
            pki.issue_node(id);
        }
        pki
    }

    pub(crate) fn issue_node(&self, id: u64) {
        self.put(&format!("node-{id}"), &self.node(id));
    }

    pub(crate) fn node(&self, id: u64) -> Issued {
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        self.ca.issue_node(id, &hosts, Validity::LEAF).unwrap()
    }

    pub(crate) fn client(&self, name: &str) -> Identity {
        self.identity(&self.ca.issue_client(name, Validity::LEAF).unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub(crate) fn put(&self, stem: &str, issued: &Issued) {
        self.write(&format!("{stem}.pem"), &issued.certificate_pem);
        self.write(&format!("{stem}-key.pem"), &issued.key_pem);
    }

    pub(crate) fn identity(&self, issued: &Issued) -> Identity {
        let certificate = self.write("some.pem", &issued.certificate_pem);
        load_identity(&certificate, &self.write("some-key.pem", &issued.key_pem)).unwrap()
    }

    pub(crate) fn trust(&self) -> TrustFiles {
        TrustFiles::load(&self.path("ca.pem"), None).unwrap()
    }

    pub(crate) fn client_tls(&self, id: u64) -> TlsConfig {
        TlsConfig {
            cert: self.path(&format!("node-{id}.pem")),
            key: self.path(&format!("node-{id}-key.pem")),
            client_ca: Some(self.path("ca.pem")),
            crl: Some(self.path("crl.pem")).filter(|path| path.exists()),
        }
    }

    pub(crate) fn peer_tls(&self, id: u64) -> PeerTlsConfig {
        PeerTlsConfig {
            cert: self.path(&format!("node-{id}.pem")),
            key: self.path(&format!("node-{id}-key.pem")),
            ca: self.path("ca.pem"),
            crl: Some(self.path("crl.pem")).filter(|path| path.exists()),
        }
    }

    pub(crate) fn secure(&self, config: &mut NodeConfig) {
        config.tls = Some(self.client_tls(config.node));
        config.peer_tls = Some(self.peer_tls(config.node));
    }

    pub(crate) fn revoke(&self, identity: &Identity) {
        let serials = [identity.details.serial.clone()];
        self.write("crl.pem", &self.ca.revoke(&serials, 1, Validity::LEAF).unwrap());
    }

    pub(crate) async fn one_node(&self) -> Cluster {
        Cluster::start_with(1, |config| config.tls = Some(self.client_tls(1))).await
    }

    /// Shows the certificate, if there is one.
    pub(crate) async fn dial(
        &self,
        address: &str,
        own: Option<&Identity>,
        protocol: &[u8],
    ) -> io::Result<Socket> {
        let verify = Verify::Cluster(CLUSTER.to_owned());
        let config = client_config(verify, self.trust(), own, &[protocol]).unwrap();
        let socket = TcpStream::connect(address).await?;
        holdfast_tls::connect(Arc::new(config), address, socket).await
    }

    pub(crate) async fn framed(
        &self,
        address: &str,
        own: Option<&Identity>,
    ) -> FramedClient<Socket> {
        FramedClient::over(self.dial(address, own, ALPN_FRAMED).await.unwrap()).await
    }

    pub(crate) async fn grpc(&self, address: &str, own: Option<&Identity>) -> Client {
        let socket = self.dial(address, own, ALPN_GRPC).await.unwrap();
        LockServiceClient::new(channel_over(socket).await.unwrap())
    }

    /// What the node says to a client with this certificate.
    pub(crate) async fn refusal(&self, address: &str, own: Option<&Identity>) -> String {
        refused_in_time(async || {
            let refused = async {
                let mut socket = self.dial(address, own, ALPN_FRAMED).await?;
                socket.write_all(&holdfast_proto::plain::GREETING).await?;
                socket.read_u8().await.map(|_| ())
            };
            explain_any(&refused.await.expect_err("it got in")).expect("a reason of TLS")
        })
        .await
    }
}

/// What one attempt to get in is told. It is told so within a second, at least once in three attempts.
pub(crate) async fn refused_in_time<T>(mut attempt: impl AsyncFnMut() -> T) -> T {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let begun = Instant::now();
        let told = timeout(PATIENCE, attempt()).await.expect("it is not refused");
        let took = begun.elapsed();
        assert!(took < REFUSED_WITHIN_AT_LOAD, "{took:?}");
        if took < REFUSED_WITHIN {
            return told;
        }
        assert!(attempts < ATTEMPTS, "no refusal came within {REFUSED_WITHIN:?}: {took:?}");
    }
}

/// A connection that is there already.
struct Once(Option<Socket>);

impl TowerService<Uri> for Once {
    type Response = TokioIo<Socket>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Socket>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let socket = self.0.take().ok_or_else(|| io::ErrorKind::NotConnected.into());
        Box::pin(async move { socket.map(TokioIo::new) })
    }
}

pub(crate) async fn channel_over(socket: Socket) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_static("http://node");
    endpoint.connect_with_connector(Once(Some(socket))).await
}

/// Dials node 1 with this certificate.
pub(crate) async fn dial_peer(
    pki: &Pki,
    cluster: &Cluster,
    own: &Identity,
    protocol: &[u8],
) -> io::Result<Socket> {
    let address = cluster.configs[0].nodes[0].peer.to_string();
    let config = peer_client_config(own, CLUSTER, 1, pki.trust(), protocol).unwrap();
    let socket = TcpStream::connect(&address).await?;
    holdfast_tls::connect(Arc::new(config), &address, socket).await
}
