//! Why a node does not serve: what it tells must be what it knows.

use holdfast_cluster_kit::{Addresses, Network, Nodes, Plan, WallClocks};
use holdfast_proto::SessionId;
use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_proto::v1::{
    AcquireRequest, ClusterStatusRequest, Failure, OpenSessionRequest, Reason, StatusRequest,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::support::{Cluster, PATIENCE, cluster_slot, eventually, holdfast, output};

type Client = LockServiceClient<Channel>;

/// Three nodes with wires between them that can be cut.
struct Wired {
    _nodes: Nodes,
    network: Network,
    addresses: Addresses,
    _dir: TempDir,
}

impl Wired {
    async fn start() -> Wired {
        let dir = tempfile::tempdir().unwrap();
        let addresses = Addresses::choose_with_http(3);
        let network = Network::between(&addresses.peer, &addresses.client).await.unwrap();
        let plan = Plan {
            cluster: "reasons",
            addresses: &addresses,
            network: Some(&network),
            settings: "",
        };
        let binary = env!("CARGO_BIN_EXE_holdfast").as_ref();
        let clocks = WallClocks::untouched(dir.path());
        let mut nodes = Nodes::prepare(binary, dir.path(), clocks, &plan).unwrap();
        for node in 1..=3 {
            nodes.start(node).unwrap();
        }
        Wired { _nodes: nodes, network, addresses, _dir: dir }
    }

    async fn client(&self, node: u64) -> Client {
        let address = &self.addresses.client[&node];
        let channel = eventually("the node listens", PATIENCE, || async {
            let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
            endpoint.connect().await.ok()
        });
        Client::new(channel.await)
    }

    /// The leader, as this node itself sees it; none if it knows none.
    async fn leader_seen_by(&self, node: u64) -> Option<u64> {
        let request = ClusterStatusRequest { own_view: true, ..Default::default() };
        let view = self.client(node).await.cluster_status(request).await.ok()?.into_inner();
        Some(view.groups[0].leader).filter(|leader| *leader > 0)
    }
}

fn reason_of(status: &Status) -> Reason {
    Failure::from_status(status).reason()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_lost_only_the_leader_says_so_and_where_it_is() {
    let _slot = cluster_slot().await;
    let cluster = Wired::start().await;
    let leader = eventually("every node knows one leader", PATIENCE, || async {
        let mut seen = Vec::new();
        for node in 1..=3 {
            seen.push(cluster.leader_seen_by(node).await?);
        }
        seen.iter().all(|leader| *leader == seen[0]).then_some(seen[0])
    })
    .await;
    let follower = leader % 3 + 1;
    let third = 6 - leader - follower;
    cluster
        .network
        .cut_peers(|from, to| [from, to] == [leader, follower] || [to, from] == [leader, follower]);
    eventually("the follower knows no leader", PATIENCE, || async {
        cluster.leader_seen_by(follower).await.is_none().then_some(())
    })
    .await;
    assert_eq!(cluster.leader_seen_by(third).await, Some(leader), "the others go on");

    let request = StatusRequest { name: "a".into(), request_id: 0 };
    let status = cluster.client(follower).await.status(request).await.unwrap_err();
    let failure = Failure::from_status(&status);
    assert_eq!(failure.reason(), Reason::NotLeader, "{failure:?}");
    assert!(failure.message.contains(&format!("node {leader} leads")), "{failure:?}");
    assert_eq!(failure.leader, cluster.network.client_addresses()[&leader]);
    assert!(failure.retryable && !failure.may_have_happened);

    // A client that knows this node alone goes on to the leader.
    let mut lock = holdfast();
    lock.args(["--endpoints", &cluster.addresses.client[&follower], "lock", "a", "--", "true"]);
    let locked = output(lock).await;
    assert!(locked.status.success(), "{locked:?}");

    let ready = readiness(&cluster.addresses.http[&follower]).await;
    assert!(ready.contains(&format!("node {leader} led last")), "{ready}");
}

async fn readiness(address: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn with_session(address: &str) -> (Client, String) {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client =
        Client::new(endpoint.connect().await.unwrap()).max_encoding_message_size(64 << 20);
    let session_id = SessionId::random().unwrap().to_secret_text();
    let request =
        OpenSessionRequest { session_id: session_id.clone(), ttl_ms: 60_000, ..Default::default() };
    client.open_session(request).await.unwrap();
    (client, session_id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_is_refused_with_a_reason() {
    let cluster = Cluster::start(1).await;
    let (mut client, session) = with_session(&cluster.client_address(1)).await;
    let metadata = vec![0; 5 << 20];
    let request = AcquireRequest {
        session_id: session,
        request_id: 1,
        name: "a".into(),
        metadata,
        ..Default::default()
    };
    let status = client.acquire(request).await.unwrap_err();
    assert_eq!(reason_of(&status), Reason::MessageTooLarge, "{status:?}");
    let failure = Failure::from_status(&status);
    assert!(!failure.retryable && !failure.may_have_happened, "{failure:?}");
}

fn lines(cluster: &Cluster, node: u64, words: &str) -> usize {
    cluster.log_of(node).matches(words).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_data_does_not_log_each_connection_of_those_who_refuse_it() {
    let mut cluster = Cluster::start(3).await;
    let node = cluster.follower().await;
    cluster.kill(node);
    cluster.wipe(node);
    let connected = lines(&cluster, node, "a peer connected");
    cluster.launch(node);
    // In this time its peers dial it and are dialled by it every second.
    eventually("it has been refused for five seconds", PATIENCE, || async {
        (lines(&cluster, node, "no leader for 5s") > 0).then_some(())
    })
    .await;
    assert_eq!(
        lines(&cluster, node, "a peer connected"),
        connected,
        "those who refuse it do not connect"
    );
    assert!(lines(&cluster, node, "peer refused") > 0, "it says that it is refused");
    for other in cluster.ids().into_iter().filter(|other| *other != node) {
        assert_eq!(lines(&cluster, other, "refused a peer"), 1, "node {other} says it once");
    }
}
