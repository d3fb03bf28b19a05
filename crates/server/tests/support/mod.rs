//! Real nodes on loopback, for tests of what only a whole node can show.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod every_method;
pub(crate) mod framed;
#[cfg(unix)]
pub(crate) mod pki;
pub(crate) mod secured;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use holdfast_cluster_kit::{Wire, free_ports};
use holdfast_proto::SessionId;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::{
    AcquireRequest, ClientFrame, ClusterStatusRequest, ListSessionsRequest, OpenSessionRequest,
    Operation, ServerFrame, SessionInfo, operation,
};
use holdfast_server::{Address, Node, NodeConfig};
use holdfast_service::Service;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

pub(crate) type Client = LockServiceClient<Channel>;

/// Long enough for a slow machine, short enough for a person.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Cluster {
    pub(crate) configs: Vec<NodeConfig>,
    pub(crate) nodes: Vec<Option<Node>>,
    _dir: TempDir,
}

impl Cluster {
    /// Started, with a leader that every node is connected to.
    pub(crate) async fn start(count: usize) -> Cluster {
        Cluster::start_with(count, |_| ()).await
    }

    pub(crate) async fn start_with(count: usize, change: impl Fn(&mut NodeConfig)) -> Cluster {
        Cluster::start_observed(count, change, |_| Service::default()).await
    }

    /// Each node with the service that it is given.
    pub(crate) async fn start_observed(
        count: usize,
        change: impl Fn(&mut NodeConfig),
        service: impl Fn(&NodeConfig) -> Service,
    ) -> Cluster {
        let cluster = Cluster::open(count, change, service).await;
        cluster.serving().await;
        cluster
    }

    /// As [`Cluster::start_with`]. What the other nodes send to this one goes through the wire.
    pub(crate) async fn start_behind_wire(
        count: usize,
        change: impl Fn(&mut NodeConfig),
        index: usize,
    ) -> (Cluster, Wire) {
        let (dir, mut configs) = Cluster::configure(count, change);
        let listens = configs[index].nodes[index].peer.clone();
        let wire = Wire::to(&listens.to_string()).await.unwrap();
        for config in &mut configs {
            config.nodes[index].peer = Address::new(wire.address()).unwrap();
        }
        configs[index].listen.peer = Some(listens);
        let cluster = Cluster::launch(dir, configs, |_| Service::default()).await;
        cluster.serving().await;
        (cluster, wire)
    }

    /// As [`Cluster::start_with`]. What the two nodes send each other goes through the wires.
    pub(crate) async fn start_with_wires_between(
        count: usize,
        change: impl Fn(&mut NodeConfig),
        nodes: [usize; 2],
    ) -> (Cluster, [Wire; 2]) {
        let (dir, mut configs) = Cluster::configure(count, change);
        for config in &mut configs {
            // Each of the two has another address for the other one than the third node has.
            config.announce_addresses = false;
        }
        let [one, other] = nodes;
        let mut wires = Vec::new();
        for (from, to) in [(one, other), (other, one)] {
            let wire = Wire::to(&configs[to].nodes[to].peer.to_string()).await.unwrap();
            configs[from].nodes[to].peer = Address::new(wire.address()).unwrap();
            wires.push(wire);
        }
        let cluster = Cluster::launch(dir, configs, |_| Service::default()).await;
        cluster.serving().await;
        (cluster, wires.try_into().unwrap())
    }

    /// Started; perhaps not all of them can serve.
    pub(crate) async fn start_without_waiting(
        count: usize,
        change: impl Fn(&mut NodeConfig),
    ) -> Cluster {
        Cluster::open(count, change, |_| Service::default()).await
    }

    async fn open(
        count: usize,
        change: impl Fn(&mut NodeConfig),
        service: impl Fn(&NodeConfig) -> Service,
    ) -> Cluster {
        let (dir, configs) = Cluster::configure(count, change);
        Cluster::launch(dir, configs, service).await
    }

    /// Nothing is started yet.
    fn configure(count: usize, change: impl Fn(&mut NodeConfig)) -> (TempDir, Vec<NodeConfig>) {
        let dir = tempfile::tempdir().unwrap();
        let mut configs = NodeConfig::dev_cluster(count, dir.path(), 1_000).unwrap();
        let addresses = free_addresses(3 * count);
        for config in &mut configs {
            change(config);
            for (member, ports) in config.nodes.iter_mut().zip(addresses.chunks(3)) {
                (member.client, member.peer) = (Address::from(ports[0]), Address::from(ports[1]));
                if member.http.is_some() {
                    member.http = Some(Address::from(ports[2]));
                }
            }
        }
        (dir, configs)
    }

    async fn launch(
        dir: TempDir,
        configs: Vec<NodeConfig>,
        service: impl Fn(&NodeConfig) -> Service,
    ) -> Cluster {
        let mut nodes = Vec::new();
        for config in &configs {
            let service = service(config);
            nodes.push(Some(Node::start_with(config.clone(), service).await.unwrap()));
        }
        Cluster { configs, nodes, _dir: dir }
    }

    pub(crate) async fn serving(&self) {
        for node in self.nodes.iter().flatten() {
            timeout(PATIENCE, node.serving()).await.expect("no leader in time");
        }
    }

    pub(crate) async fn stop(&mut self, index: usize) {
        self.nodes[index].take().unwrap().shutdown().await;
    }

    pub(crate) async fn restart(&mut self, index: usize) {
        let node = Node::start(self.configs[index].clone()).await.unwrap();
        self.nodes[index] = Some(node);
        self.serving().await;
    }

    pub(crate) fn address(&self, index: usize) -> String {
        self.configs[index].nodes[index].client.to_string()
    }

    pub(crate) fn http_address(&self, index: usize) -> String {
        self.configs[index].nodes[index].http.as_ref().unwrap().to_string()
    }

    pub(crate) async fn client(&self, index: usize) -> Client {
        connect(&self.address(index)).await
    }

    /// The index of the node that leads, as node `asked` sees it.
    pub(crate) async fn leader(&self, asked: usize) -> usize {
        eventually("there is a leader", async || {
            let mut client = self.client(asked).await;
            let status = client.cluster_status(ClusterStatusRequest::default()).await.unwrap();
            let leader = status.into_inner().groups[0].leader;
            (leader > 0).then(|| leader as usize - 1)
        })
        .await
    }

    pub(crate) async fn a_follower(&self) -> usize {
        (self.leader(0).await + 1) % self.configs.len()
    }
}

/// Asks again and again until there is an answer; fails the test after [`PATIENCE`].
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        // The interval of asking, not a guess at how long it takes.
        sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn free_addresses(count: usize) -> Vec<SocketAddr> {
    free_ports(count).into_iter().map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect()
}

/// Status and body of one page.
pub(crate) async fn http_get(address: &str, path: &str) -> (u16, String) {
    http_request(address, "GET", path, "", "").await
}

/// With more headers, each with its end of line.
pub(crate) async fn http_request(
    address: &str,
    verb: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String) {
    let stream = TcpStream::connect(address).await.unwrap();
    let answer = http_exchange(stream, address, verb, path, headers, body).await;
    (answer.code, answer.body)
}

/// What a node answered on its HTTP port.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) code: u16,
    /// The first line and all headers.
    head: String,
    pub(crate) body: String,
}

impl HttpAnswer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// One request and its whole answer, on a connection of its own.
pub(crate) async fn http_exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    verb: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> HttpAnswer {
    let request = format!(
        "{verb} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // What the server did not read makes the end of the connection a rude one.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("no answer in time");
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code = code.expect("no HTTP answer");
    HttpAnswer { code, head: head.to_owned(), body: body.to_owned() }
}

/// The status of a page that may go on for ever.
pub(crate) async fn http_status(address: &str, path: &str, headers: &str) -> u16 {
    const STATUS_LINE: usize = "HTTP/1.1 200".len();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = [0; STATUS_LINE];
    timeout(PATIENCE, stream.read_exact(&mut line)).await.expect("no answer in time").unwrap();
    let line = std::str::from_utf8(&line).unwrap();
    line.strip_prefix("HTTP/1.1 ").and_then(|code| code.parse().ok()).expect("no HTTP answer")
}

pub(crate) async fn connect(address: &str) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    LockServiceClient::new(endpoint.connect().await.unwrap())
}

pub(crate) fn new_session() -> String {
    SessionId::random().unwrap().to_secret_text()
}

pub(crate) fn public_id(session: &str) -> String {
    session.parse::<SessionId>().unwrap().public_id().to_string()
}

pub(crate) async fn open(client: &mut Client, ttl_ms: u64) -> String {
    let session_id = new_session();
    let request =
        OpenSessionRequest { session_id: session_id.clone(), ttl_ms, ..Default::default() };
    client.open_session(request).await.unwrap();
    session_id
}

pub(crate) fn acquire(session: &str, request_id: u64, name: &str, wait_ms: u64) -> AcquireRequest {
    AcquireRequest {
        session_id: session.to_owned(),
        request_id,
        name: name.to_owned(),
        wait_ms,
        ..Default::default()
    }
}

/// A session on a stream.
pub(crate) struct OnStream {
    pub(crate) session: String,
    pub(crate) frames: mpsc::Sender<ClientFrame>,
    pub(crate) answers: Streaming<ServerFrame>,
}

impl OnStream {
    /// Opens a session with a TTL of 30 s on a stream and waits for the answer.
    pub(crate) async fn open(client: &mut Client, linger_ms: u64) -> OnStream {
        let session = new_session();
        let open = operation::Kind::Open(OpenSessionRequest {
            session_id: session.clone(),
            request_id: 1,
            linger_ms: Some(linger_ms),
            ..Default::default()
        });
        let mut stream = OnStream::begin(client, session, open).await;
        let frame = stream.next().await.unwrap();
        assert_eq!(frame.answers.len(), 1, "{frame:?}");
        stream
    }

    pub(crate) async fn begin(
        client: &mut Client,
        session: String,
        first: operation::Kind,
    ) -> OnStream {
        let (frames, requests) = mpsc::channel(16);
        let answers =
            client.session(ReceiverStream::new(requests)).await.expect("no stream").into_inner();
        let stream = OnStream { session, frames, answers };
        stream.send(vec![first]).await;
        stream
    }

    pub(crate) async fn send(&self, kinds: Vec<operation::Kind>) {
        let operations = kinds.into_iter().map(|kind| Operation { kind: Some(kind) }).collect();
        self.frames.send(ClientFrame { acked_through: 0, operations }).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Result<ServerFrame, Status> {
        let next = timeout(PATIENCE, self.answers.message()).await.expect("no frame in time");
        next.map(|frame| frame.expect("the stream ended"))
    }

    /// The status with which the stream ends, after any frames.
    pub(crate) async fn end(&mut self) -> Status {
        loop {
            match timeout(PATIENCE, self.answers.message()).await.expect("no end in time") {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok(""),
                Err(status) => return status,
            }
        }
    }
}

/// The session as the cluster shows it; none if it has ended.
pub(crate) async fn find_session(client: &mut Client, session: &str) -> Option<SessionInfo> {
    let listed = client.list_sessions(ListSessionsRequest::default()).await.unwrap().into_inner();
    let public = public_id(session);
    listed.sessions.into_iter().find(|info| info.public_id == public)
}

/// Waits until the session has ended; tells how long that took.
pub(crate) async fn until_ended(client: &mut Client, session: &str) -> Duration {
    let start = Instant::now();
    eventually("the session has ended", async || {
        find_session(client, session).await.is_none().then_some(())
    })
    .await;
    start.elapsed()
}

/// By which the node is known to the others.
pub(crate) fn data_dir_id(cluster: &Cluster, node: usize) -> String {
    let file = cluster.configs[node].data_dir.join("identity.toml");
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("data_dir_id = ")).unwrap();
    line.trim_matches('"').to_owned()
}
