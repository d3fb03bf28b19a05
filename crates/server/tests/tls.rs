//! TLS on the ports of real nodes: who gets in, who does not and what they are told, and what a reload changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast_proto::peer_v1::forward_service_client::ForwardServiceClient;
use holdfast_proto::peer_v1::peer_service_client::PeerServiceClient;
use holdfast_proto::peer_v1::{ForwardedAction, Hello, PeerFrame, Timing};
use holdfast_proto::v1::{Failure, OpenSessionRequest, Reason, StatusRequest, acquire_response};
use holdfast_server::{NodeConfig, ReloadError, TlsError};
use holdfast_service::{Caller, Method, Protocol, Service};
use holdfast_tls::{
    ALPN_FRAMED, ALPN_GRPC, ALPN_HTTP, ALPN_PEER, Identity, Issued, Socket, Validity, Verify,
    client_config, explain_any, load_identity,
};
use support::framed::{FramedClient, Received, acquire, opening};
use support::pki::{
    CLUSTER, Pki, REFUSED_WITHIN_AT_LOAD, channel_over, dial_peer, refused_in_time,
};
use support::{Cluster, OnStream, PATIENCE, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

fn status_of(name: &str) -> StatusRequest {
    StatusRequest { name: name.to_owned(), request_id: 0 }
}

/// A certificate ends with a whole second.
fn is_over(identity: &Identity) -> bool {
    time::OffsetDateTime::now_utc() >= identity.details.not_after + Duration::from_secs(1)
}

/// Of every action that passed.
#[derive(Clone, Default)]
struct Callers(Arc<Mutex<Vec<(Method, Caller)>>>);

impl Callers {
    fn service(&self) -> Service {
        let seen = Arc::clone(&self.0);
        Service::default().observed_by(Arc::new(move |caller, method| {
            seen.lock().unwrap().push((method, caller.clone()));
        }))
    }

    /// What all callers of the method were, since it was last asked.
    fn of(&self, method: Method, protocol: Protocol) -> Vec<String> {
        let mut seen = self.0.lock().unwrap();
        let of = seen.iter().filter(|(m, caller)| *m == method && caller.protocol == protocol);
        let names = of
            .map(|(_, caller)| match caller.forwarded_by {
                Some(node) => format!("{} by node {node}", caller.on_behalf_of),
                None => caller.on_behalf_of.to_string(),
            })
            .collect();
        seen.retain(|(m, caller)| *m != method || caller.protocol != protocol);
        names
    }
}

#[tokio::test]
async fn a_client_with_a_certificate_is_known_by_its_name_in_calls_streams_and_frames() {
    let (pki, callers) = (Pki::new(), Callers::default());
    let secure = |config: &mut NodeConfig| config.tls = Some(pki.client_tls(1));
    let cluster = Cluster::start_observed(1, secure, |_| callers.service()).await;
    let (address, billing) = (cluster.address(0), pki.client("billing"));

    let mut framed = pki.framed(&address, Some(&billing)).await;
    framed.open().await;
    framed.take("a").await;
    framed.be_busy().await;
    let names = callers.of(Method::Acquire, Protocol::Framed);
    assert!(names.len() > 1 && names.iter().all(|name| name == "cert:billing"), "{names:?}");

    let mut grpc = pki.grpc(&address, Some(&billing)).await;
    grpc.status(status_of("a")).await.unwrap();
    OnStream::open(&mut grpc, 0).await;
    assert_eq!(callers.of(Method::Status, Protocol::Grpc), ["cert:billing"]);
    assert!(callers.of(Method::Session, Protocol::Grpc).contains(&"cert:billing".to_owned()));

    let mut bare = pki.grpc(&address, None).await;
    bare.status(status_of("a")).await.unwrap();
    assert_eq!(callers.of(Method::Status, Protocol::Grpc), ["anonymous"]);
}

#[tokio::test]
async fn the_leader_knows_the_client_of_another_node_by_its_certificate() {
    let (pki, callers) = (Pki::new(), [(); 3].map(|()| Callers::default()));
    let service = |config: &NodeConfig| callers[config.node as usize - 1].service();
    let cluster = Cluster::start_observed(3, |config| pki.secure(config), service).await;
    let billing = pki.client("billing");
    let mut any = pki.grpc(&cluster.address(0), Some(&billing)).await;
    let status = any.cluster_status(holdfast_proto::v1::ClusterStatusRequest::default()).await;
    let leader = status.unwrap().into_inner().groups[0].leader as usize - 1;
    let follower = (leader + 1) % 3;
    let address = cluster.address(follower);
    eventually("the follower reaches the leader", async || {
        let mut client = pki.grpc(&address, Some(&billing)).await;
        client.status(status_of("a")).await.ok()
    })
    .await;
    let by = format!("cert:billing by node {}", follower + 1);
    assert!(callers[leader].of(Method::Status, Protocol::Grpc).contains(&by));

    let mut framed = pki.framed(&address, Some(&billing)).await;
    framed.open().await;
    framed.take("a").await;
    assert_eq!(callers[leader].of(Method::Acquire, Protocol::Framed), [by]);
}

#[tokio::test]
async fn plaintext_at_a_port_with_tls_is_refused_and_told_why() {
    let pki = Pki::new();
    let cluster = pki.one_node().await;
    let address = cluster.address(0);

    let failure = refused_in_time(async || {
        let mut framed = FramedClient::greet(&address).await;
        let Received::End(failure) = framed.next().await else { panic!("it got in") };
        failure
    })
    .await;
    assert_eq!((failure.reason(), failure.retryable), (Reason::Unauthenticated, false));
    let message = &failure.message;
    assert!(message.contains("speaks TLS") && message.contains("authority of the cluster (ca)"));

    let status = refused_in_time(async || {
        support::connect(&address).await.status(status_of("a")).await.unwrap_err()
    })
    .await;
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(Failure::from_status(&status).reason(), Reason::Unauthenticated);

    let http = cluster.http_address(0);
    let (code, body) = refused_in_time(async || support::http_get(&http, "/healthz").await).await;
    assert_eq!(code, 400);
    assert!(body.contains("https://"), "{body}");
}

#[tokio::test]
async fn tls_at_a_plaintext_port_is_refused_and_told_why() {
    let pki = Pki::new();
    let cluster = Cluster::start(1).await;
    let ports = [
        (cluster.address(0), ALPN_FRAMED),
        (cluster.http_address(0), ALPN_HTTP),
        (cluster.configs[0].nodes[0].peer.to_string(), ALPN_PEER),
    ];
    for (address, protocol) in ports {
        let error =
            refused_in_time(async || pki.dial(&address, None, protocol).await.unwrap_err()).await;
        let words = explain_any(&error).unwrap();
        assert!(words.contains("the other side speaks plaintext"), "{words}");
        let said = refused_in_time(async || {
            let mut raw = TcpStream::connect(&address).await.unwrap();
            raw.write_all(&[0x16, 3, 1, 0, 5]).await.unwrap();
            let mut said = String::new();
            raw.read_to_string(&mut said).await.unwrap();
            said
        })
        .await;
        assert!(said.contains("speaks no TLS"), "{said}");
    }
    support::connect(&cluster.address(0)).await.status(status_of("a")).await.unwrap();
}

#[tokio::test]
async fn the_client_port_refuses_certificates_that_are_none_of_a_client_and_says_why() {
    let (pki, other) = (Pki::new(), Pki::new());
    let revoked = pki.client("fired");
    pki.revoke(&revoked);
    let soon_over = pki.ca.issue_client("late", Validity::from_now(Duration::from_secs(1)));
    let soon_over = pki.identity(&soon_over.unwrap());
    let cluster = pki.one_node().await;
    let address = cluster.address(0);
    let node = pki.identity(&pki.node(1));
    let foreign = pki.identity(&other.ca.issue_client("billing", Validity::LEAF).unwrap());
    let refusals = [
        (&node, "not one for this port"),
        (&foreign, "an authority that is not trusted there"),
        (&revoked, "our certificate is revoked"),
    ];
    for (identity, expected) in refusals {
        let words = pki.refusal(&address, Some(identity)).await;
        assert!(words.contains(expected), "{words}");
    }
    let words = eventually("the certificate is over", async || {
        if !is_over(&soon_over) {
            return None;
        }
        Some(pki.refusal(&address, Some(&soon_over)).await)
    })
    .await;
    assert!(words.contains("our certificate is over"), "{words}");
    // Every other client is served on.
    pki.framed(&address, Some(&pki.client("billing"))).await.open().await;
}

#[tokio::test]
async fn a_client_does_not_trust_a_node_of_another_authority_or_cluster() {
    let (pki, other) = (Pki::new(), Pki::new());
    let cluster = pki.one_node().await;
    let error = other.dial(&cluster.address(0), None, ALPN_FRAMED).await.unwrap_err();
    let words = explain_any(&error).unwrap();
    assert!(words.contains("an authority that is not trusted here"), "{words}");
    let verify = Verify::Cluster("prod".to_owned());
    let config = client_config(verify, pki.trust(), None, &[ALPN_FRAMED]).unwrap();
    let socket = TcpStream::connect(cluster.address(0)).await.unwrap();
    let error = holdfast_tls::connect(Arc::new(config), "localhost:1", socket).await.unwrap_err();
    let words = explain_any(&error).unwrap();
    assert!(words.contains("wanted a node of cluster 'prod'"), "{words}");
}

#[tokio::test]
async fn the_http_port_speaks_tls() {
    let pki = Pki::new();
    let cluster = pki.one_node().await;
    let mut socket = pki.dial(&cluster.http_address(0), None, ALPN_HTTP).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    socket.write_all(request).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, socket.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_client_that_is_killed_frees_its_locks_as_without_tls() {
    let pki = Pki::new();
    let cluster = pki.one_node().await;
    let billing = pki.client("billing");
    let mut holder = pki.framed(&cluster.address(0), Some(&billing)).await;
    holder.open_with_linger(0).await;
    holder.take("a").await;
    let mut waiter = pki.framed(&cluster.address(0), Some(&billing)).await;
    waiter.open().await;
    // The system closes its socket, and nothing says farewell.
    drop(holder.socket.into_parts());
    eventually("the lock is free", async || {
        let answer = waiter.ask(acquire(next_request(), "a")).await;
        let holdfast_proto::v1::answer::Result::Acquire(answer) = answer else {
            panic!("{answer:?}")
        };
        use holdfast_proto::v1::acquire_response::Outcome;
        matches!(answer.outcome, Some(Outcome::Granted(_))).then_some(())
    })
    .await;
}

fn next_request() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(10);
    LAST.fetch_add(1, Ordering::Relaxed)
}

#[tokio::test]
async fn handshakes_of_one_address_that_go_on_for_ever_hold_up_no_other_address() {
    let pki = Pki::new();
    let cluster = pki.one_node().await;
    let mut stalled = Vec::new();
    for _ in 0..64 {
        let mut socket = TcpStream::connect(cluster.address(0)).await.unwrap();
        socket.write_all(&[0x16]).await.unwrap();
        stalled.push(socket);
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0))).unwrap();
    let socket = socket.connect(cluster.address(0).parse().unwrap()).await.unwrap();
    assert_eq!(socket.local_addr().unwrap().ip(), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    let verify = Verify::Cluster(CLUSTER.to_owned());
    let config = client_config(verify, pki.trust(), None, &[ALPN_FRAMED]).unwrap();
    let begun = Instant::now();
    let socket = holdfast_tls::connect(Arc::new(config), "localhost:1", socket).await.unwrap();
    FramedClient::over(socket).await.open().await;
    assert!(begun.elapsed() < REFUSED_WITHIN_AT_LOAD, "{:?}", begun.elapsed());
    // A handshake that goes on for ever ends.
    let mut first = stalled.remove(0);
    let ended = timeout(PATIENCE, first.read(&mut [0; 64])).await.expect("it goes on");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

/// A session of single calls to node 1, which are repeated until they are answered.
struct LongSession<'a> {
    pki: &'a Pki,
    address: String,
    own: &'a Identity,
    id: String,
    last_request: u64,
}

impl<'a> LongSession<'a> {
    async fn open(pki: &'a Pki, cluster: &Cluster, own: &'a Identity) -> LongSession<'a> {
        let (address, id) = (cluster.address(0), support::new_session());
        let request = OpenSessionRequest {
            session_id: id.clone(),
            ttl_ms: 120_000,
            request_id: 1,
            ..Default::default()
        };
        eventually("the session is open", async || {
            let mut client = pki.grpc(&address, Some(own)).await;
            client.open_session(request.clone()).await.ok()
        })
        .await;
        LongSession { pki, address, own, id, last_request: 1 }
    }

    async fn take(&mut self, name: &str) {
        self.last_request += 1;
        let request = support::acquire(&self.id, self.last_request, name, 0);
        let answer = eventually("the lock is taken", async || {
            let mut client = self.pki.grpc(&self.address, Some(self.own)).await;
            client.acquire(request.clone()).await.ok()
        });
        let outcome = answer.await.into_inner().outcome;
        assert!(matches!(outcome, Some(acquire_response::Outcome::Granted(_))), "{outcome:?}");
    }

    async fn holders(&self, name: &str) -> u64 {
        let status = eventually("the status is known", async || {
            let mut client = self.pki.grpc(&self.address, Some(self.own)).await;
            client.status(status_of(name)).await.ok()
        });
        status.await.into_inner().holder_count
    }
}

// ---- peers ----

fn hello_of(node: u64) -> PeerFrame {
    PeerFrame {
        hello: Some(Hello {
            version: 2,
            cluster: CLUSTER.to_owned(),
            from_node: node,
            to_node: 1,
            data_dir_id: "00112233445566778899aabbccddeeff".to_owned(),
            timing: Some(Timing { tick_ms: 50, election_ticks: 10 }),
            ..Default::default()
        }),
    }
}

async fn say_hello(channel: Channel, node: u64) -> Result<(), Status> {
    let hello =
        tokio_stream::StreamExt::chain(tokio_stream::once(hello_of(node)), tokio_stream::pending());
    let mut replies = PeerServiceClient::new(channel).exchange(hello).await?.into_inner();
    replies.message().await?;
    Ok(())
}

/// Why node 1 does not talk to this one, which says that it is that node.
async fn peer_refusal(pki: &Pki, cluster: &Cluster, own: &Identity, node: u64) -> String {
    refused_in_time(async || {
        let dialled = async {
            let mut socket = dial_peer(pki, cluster, own, ALPN_GRPC).await?;
            socket.until_accepted().await?;
            Ok::<_, io::Error>(socket)
        };
        match dialled.await {
            Ok(socket) => {
                let channel = channel_over(socket).await.unwrap();
                let status = say_hello(channel, node).await.expect_err("it got in");
                status.message().to_owned()
            }
            Err(error) => explain_any(&error).unwrap(),
        }
    })
    .await
}

#[tokio::test]
async fn the_peer_port_refuses_all_but_the_node_that_speaks_and_the_cluster_goes_on() {
    let (pki, other) = (Pki::new(), Pki::new());
    let revoked = pki.identity(&pki.node(3));
    pki.revoke(&revoked);
    let soon_over = pki.ca.issue_node(2, &[], Validity::from_now(Duration::from_secs(1)));
    let soon_over = pki.identity(&soon_over.unwrap());
    let cluster = Cluster::start_with(3, |config| pki.secure(config)).await;
    let billing = pki.client("billing");
    let mut session = LongSession::open(&pki, &cluster, &billing).await;
    session.take("a").await;

    let two = pki.identity(&pki.node(2));
    let words = peer_refusal(&pki, &cluster, &two, 3).await;
    let expected = "says it is node 3, and its certificate is holdfast://dev/node/2";
    assert!(words.contains(expected), "{words}");
    let words = peer_refusal(&pki, &cluster, &billing, 2).await;
    assert!(words.contains("not one for this port"), "{words}");
    let foreign = pki.identity(&other.ca.issue_node(2, &[], Validity::LEAF).unwrap());
    let words = peer_refusal(&pki, &cluster, &foreign, 2).await;
    assert!(words.contains("an authority that is not trusted there"), "{words}");
    let words = peer_refusal(&pki, &cluster, &revoked, 3).await;
    assert!(words.contains("our certificate is revoked"), "{words}");
    let words = eventually("the certificate is over", async || {
        if !is_over(&soon_over) {
            return None;
        }
        Some(peer_refusal(&pki, &cluster, &soon_over, 2).await)
    })
    .await;
    assert!(words.contains("our certificate is over"), "{words}");

    let address = cluster.configs[0].nodes[0].peer.to_string();
    let plaintext = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let status = refused_in_time(async || {
        say_hello(plaintext.connect().await.unwrap(), 2).await.unwrap_err()
    })
    .await;
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("[peer_tls]"), "{}", status.message());

    // A wire without a ticket, and a forwarded action without one.
    let ended = refused_in_time(async || {
        let mut wire = dial_peer(&pki, &cluster, &two, ALPN_PEER).await.unwrap();
        wire.write_all(b"\xf5hf1 0123456789abcdef").await.unwrap();
        wire.read(&mut [0; 8]).await
    })
    .await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    let channel = channel_over(dial_peer(&pki, &cluster, &two, ALPN_GRPC).await.unwrap()).await;
    let mut forwarder = ForwardServiceClient::new(channel.unwrap());
    forwarder.forward(ForwardedAction::default()).await.unwrap_err();

    // The cluster goes on: the lock is held, and others can be taken.
    session.take("b").await;
    assert_eq!(session.holders("a").await, 1);
}

#[tokio::test]
async fn a_node_in_plaintext_stays_out_of_a_cluster_with_tls_which_goes_on() {
    let pki = Pki::new();
    // Node 3 has a certificate for its clients, and none for its peers.
    let secure = |config: &mut NodeConfig| {
        pki.secure(config);
        if config.node == 3 {
            config.peer_tls = None;
        }
    };
    let cluster = Cluster::start_without_waiting(3, secure).await;
    for index in 0..2 {
        let node = cluster.nodes[index].as_ref().unwrap();
        timeout(PATIENCE, node.serving()).await.expect("no leader among the two");
    }
    let mut client = pki.framed(&cluster.address(0), Some(&pki.client("billing"))).await;
    client.open().await;
    client.take("a").await;
}

#[tokio::test]
async fn callers_in_plaintext_that_stay_at_the_peer_port_make_room_for_newer_ones() {
    const MORE_THAN_ONE_ADDRESS_MAY: usize = 300;
    const PREFACE_AND_SETTINGS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let pki = Pki::new();
    let cluster = Cluster::start_with(3, |config| pki.secure(config)).await;
    let address = cluster.configs[0].nodes[0].peer.to_string();
    let begun = Instant::now();
    let mut callers = Vec::new();
    for _ in 0..MORE_THAN_ONE_ADDRESS_MAY {
        let mut socket = TcpStream::connect(&address).await.unwrap();
        socket.write_all(PREFACE_AND_SETTINGS).await.unwrap();
        callers.push(socket);
    }
    // The oldest is closed before its own time, 5 s, is over.
    let mut oldest = callers.remove(0);
    let until_closed =
        async { while oldest.read(&mut [0; 256]).await.is_ok_and(|read| read > 0) {} };
    timeout(PATIENCE, until_closed).await.expect("it stays");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // A node still gets in.
    let two = pki.identity(&pki.node(2));
    let words = peer_refusal(&pki, &cluster, &two, 3).await;
    assert!(words.contains("says it is node 3"), "{words}");
    drop(callers);
}

// ---- files ----

fn start_error(pki: &Pki, change: impl Fn(&mut NodeConfig)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut config = NodeConfig::dev_cluster(1, dir.path(), 20_000).unwrap().remove(0);
    pki.secure(&mut config);
    change(&mut config);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let started = runtime.block_on(holdfast_server::Node::start(config));
    started.expect_err("it started").to_string()
}

#[test]
fn a_node_does_not_start_with_files_that_cannot_work_and_says_what_to_do() {
    let pki = Pki::new();
    let client = pki.ca.issue_client("billing", Validity::LEAF).unwrap();
    pki.put("client", &client);
    let missing = Path::new("/nowhere/ca.pem").to_owned();
    let words = start_error(&pki, |config| {
        config.tls.as_mut().unwrap().client_ca = Some(missing.clone());
    });
    assert!(words.starts_with("[tls] /nowhere/ca.pem"), "{words}");
    let words = start_error(&pki, |config| config.peer_tls = Some(pki.peer_tls(2)));
    assert!(words.contains("this is node 1 of cluster 'dev'"), "{words}");
    assert!(words.contains("holdfast cert node --id 1"), "{words}");
    let words = start_error(&pki, |config| {
        let tls = config.peer_tls.as_mut().unwrap();
        (tls.cert, tls.key) = (pki.path("client.pem"), pki.path("client-key.pem"));
    });
    assert!(words.contains("[peer_tls]") && words.contains("client/billing"), "{words}");
    let words = start_error(&pki, |config| {
        config.tls.as_mut().unwrap().key = pki.path("node-2-key.pem");
    });
    assert!(words.contains("is not the key of"), "{words}");
    fs::set_permissions(pki.path("node-1-key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let words = start_error(&pki, |_| ());
    assert!(words.contains("chmod o-rwx"), "{words}");
}

#[tokio::test]
async fn a_reload_with_a_wrong_file_changes_nothing_and_a_right_one_is_used_by_the_next_connection()
{
    let pki = Pki::new();
    let cluster = pki.one_node().await;
    let (address, billing) = (cluster.address(0), pki.client("billing"));
    let mut before = pki.framed(&address, Some(&billing)).await;
    before.open().await;
    let reloader = cluster.nodes[0].as_ref().unwrap().credential_reloader();
    let serial = async || {
        let socket = pki.dial(&address, Some(&billing), ALPN_FRAMED).await.unwrap();
        let Socket::Tls(stream) = socket else { panic!("plaintext") };
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let first = serial().await;
    let good = fs::read_to_string(pki.path("node-1.pem")).unwrap();
    pki.write("node-1.pem", "no certificate");
    let error = reloader.reload(&cluster.configs[0]).unwrap_err();
    assert!(matches!(error, ReloadError::Tls(TlsError::File { .. })), "{error}");
    assert_eq!(serial().await, first, "nothing has changed");
    pki.write("node-1.pem", &good);
    let mut without = cluster.configs[0].clone();
    without.tls = None;
    let error = reloader.reload(&without).unwrap_err();
    assert!(matches!(error, ReloadError::Tls(TlsError::NeedsRestart { .. })), "{error}");

    pki.issue_node(1);
    reloader.reload(&cluster.configs[0]).unwrap();
    assert_ne!(serial().await, first, "the new certificate");
    before.take("a").await;
}

#[tokio::test]
async fn the_metrics_say_when_the_certificate_of_each_port_ends_also_after_a_reload() {
    const NAME: &str = "holdfast_certificate_expires_timestamp_seconds";
    let pki = Pki::new();
    let cluster = Cluster::start_with(1, |config| pki.secure(config)).await;
    let shown = async || -> Vec<String> {
        let mut socket = pki.dial(&cluster.http_address(0), None, ALPN_HTTP).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        socket.write_all(request).await.unwrap();
        let mut page = String::new();
        timeout(PATIENCE, socket.read_to_string(&mut page)).await.unwrap().unwrap();
        page.lines().filter(|line| line.starts_with(NAME)).map(str::to_owned).collect()
    };
    let ending = |client: i64, peer: i64| {
        [("client", client), ("http", client), ("peer", peer)]
            .map(|(port, end)| format!("{NAME}{{port=\"{port}\"}} {end}"))
    };
    let end_of = |issued: &Issued| pki.identity(issued).details.not_after.unix_timestamp();
    let loaded = load_identity(&pki.path("node-1.pem"), &pki.path("node-1-key.pem")).unwrap();
    let first = loaded.details.not_after.unix_timestamp();
    assert_eq!(shown().await, ending(first, first));

    // Only one of the two tables gets a new certificate.
    let short = pki.ca.issue_node(1, &[], Validity::days(3)).unwrap();
    pki.put("short", &short);
    let mut config = cluster.configs[0].clone();
    let tls = config.tls.as_mut().unwrap();
    (tls.cert, tls.key) = (pki.path("short.pem"), pki.path("short-key.pem"));
    cluster.nodes[0].as_ref().unwrap().credential_reloader().reload(&config).unwrap();
    assert_eq!(shown().await, ending(end_of(&short), first));
}

#[tokio::test]
async fn a_revoked_certificate_ends_its_connections_and_not_the_sessions() {
    let pki = Pki::new();
    let cluster = pki.one_node().await;
    let address = cluster.address(0);
    let (billing, fired) = (pki.client("billing"), pki.client("fired"));
    let mut stays = pki.framed(&address, Some(&billing)).await;
    stays.open().await;
    let mut goes = pki.framed(&address, Some(&fired)).await;
    goes.open_with_linger(0).await;
    goes.take("a").await;
    let mut called = pki.grpc(&address, Some(&fired)).await;
    called.status(status_of("a")).await.unwrap();

    pki.revoke(&fired);
    let mut config = cluster.configs[0].clone();
    config.tls = Some(pki.client_tls(1));
    cluster.nodes[0].as_ref().unwrap().credential_reloader().reload(&config).unwrap();
    let Received::End(failure) = goes.next().await else { panic!("it was not told") };
    assert_eq!((failure.reason(), failure.retryable), (Reason::Unauthenticated, true));
    eventually("the connection of calls has ended", async || {
        called.status(status_of("a")).await.err()
    })
    .await;
    let words = pki.refusal(&address, Some(&fired)).await;
    assert!(words.contains("our certificate is revoked"), "{words}");
    // The session has not ended with its connection: the lock is held.
    let mut looks = pki.grpc(&address, Some(&billing)).await;
    let status = looks.status(status_of("a")).await.unwrap().into_inner();
    assert_eq!(status.holder_count, 1);
    stays.take("b").await;
}

#[tokio::test]
async fn a_certificate_that_is_over_ends_its_connection_and_not_the_session() {
    let pki = Pki::new();
    let cluster = pki.one_node().await;
    let issued = pki.ca.issue_client("late", Validity::from_now(Duration::from_secs(2))).unwrap();
    let late = pki.identity(&issued);
    let mut client = pki.framed(&cluster.address(0), Some(&late)).await;
    client.send(holdfast_proto::plain::FRAME, &support::framed::frame(vec![opening(0)])).await;
    let Received::Frame(_) = client.next().await else { panic!("no session") };
    client.take("a").await;
    let Received::End(failure) = client.next().await else { panic!("it was not told") };
    assert_eq!(failure.reason(), Reason::Unauthenticated);
    let mut looks = pki.grpc(&cluster.address(0), Some(&pki.client("billing"))).await;
    assert_eq!(looks.status(status_of("a")).await.unwrap().into_inner().holder_count, 1);
}

#[tokio::test]
async fn nodes_whose_certificates_are_replaced_one_after_the_other_lose_no_session() {
    let pki = Pki::new();
    let cluster = Cluster::start_with(3, |config| pki.secure(config)).await;
    let billing = pki.client("billing");
    let mut session = LongSession::open(&pki, &cluster, &billing).await;
    session.take("a").await;
    for (index, node) in cluster.nodes.iter().enumerate() {
        pki.issue_node(index as u64 + 1);
        let node = node.as_ref().unwrap();
        node.credential_reloader().reload(&cluster.configs[index]).unwrap();
        session.take(&format!("b-{index}")).await;
    }
    assert_eq!(session.holders("a").await, 1);
}

#[tokio::test]
async fn a_revoked_node_is_cut_off_and_the_others_go_on() {
    let pki = Pki::new();
    let cluster = Cluster::start_with(3, |config| pki.secure(config)).await;
    let three = load_identity(&pki.path("node-3.pem"), &pki.path("node-3-key.pem")).unwrap();
    pki.revoke(&three);
    for index in 0..2 {
        let mut config = cluster.configs[index].clone();
        pki.secure(&mut config);
        cluster.nodes[index].as_ref().unwrap().credential_reloader().reload(&config).unwrap();
    }
    let third = cluster.nodes[2].as_ref().unwrap();
    eventually("node 3 has lost the cluster", async || {
        timeout(Duration::from_millis(10), third.serving()).await.is_err().then_some(())
    })
    .await;
    let billing = pki.client("billing");
    let mut session = LongSession::open(&pki, &cluster, &billing).await;
    session.take("a").await;
}
