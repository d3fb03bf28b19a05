//! A certificate that is revoked opens nothing more: not on connections that are open, and not by a handshake that was
//! under way. What speaks plaintext to a peer port with TLS gets a refusal, and little else.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use holdfast_proto::peer_v1::forward_service_client::ForwardServiceClient;
use holdfast_proto::peer_v1::peer_service_client::PeerServiceClient;
use holdfast_proto::peer_v1::{ForwardedAction, Hello, PeerFrame, Timing, Welcome};
use holdfast_proto::plain::{self, GREETING};
use holdfast_tls::{ALPN_FRAMED, ALPN_GRPC, load_identity};
use support::framed::{BYTES_MAX, frame, opening};
use support::pki::{CLUSTER, Pki, channel_over, dial_peer};
use support::{Cluster, PATIENCE, data_dir_id, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

/// An exchange with node 1 that lasts until it is dropped.
struct Exchange {
    _frames: mpsc::Sender<PeerFrame>,
    replies: Streaming<Welcome>,
}

async fn say_hello(channel: Channel, hello: Hello) -> Result<Exchange, Status> {
    let (frames, said) = mpsc::channel(1);
    frames.send(PeerFrame { hello: Some(hello) }).await.unwrap();
    let answer = PeerServiceClient::new(channel).exchange(ReceiverStream::new(said)).await?;
    let mut replies = answer.into_inner();
    let welcome = timeout(PATIENCE, replies.message()).await.expect("no answer in time")?;
    assert!(welcome.is_some());
    Ok(Exchange { _frames: frames, replies })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_node_cannot_go_on_with_the_connections_that_it_has() {
    let pki = Pki::new();
    let mut cluster = Cluster::start_with(3, |config| pki.secure(config)).await;
    cluster.stop(2).await;
    let three = load_identity(&pki.path("node-3.pem"), &pki.path("node-3-key.pem")).unwrap();
    let hello = Hello {
        version: 2,
        cluster: CLUSTER.to_owned(),
        from_node: 3,
        to_node: 1,
        data_dir_id: data_dir_id(&cluster, 2),
        timing: Some(Timing { tick_ms: 50, election_ticks: 10 }),
        ..Default::default()
    };
    let dial = async || {
        channel_over(dial_peer(&pki, &cluster, &three, ALPN_GRPC).await.unwrap()).await.unwrap()
    };
    let (talks, waits) = (dial().await, dial().await);
    let mut exchange = say_hello(talks.clone(), hello.clone()).await.unwrap();
    // It has said nothing yet.
    assert!(ForwardServiceClient::new(waits.clone()).forward(action()).await.is_err());

    pki.revoke(&three);
    let mut config = cluster.configs[0].clone();
    pki.secure(&mut config);
    cluster.nodes[0].as_ref().unwrap().credential_reloader().reload(&config).unwrap();
    let ended = timeout(PATIENCE, exchange.replies.message()).await.expect("the exchange goes on");
    assert!(!matches!(ended, Ok(Some(_))), "{ended:?}");
    for channel in [talks, waits] {
        eventually("the connection is closed", async || {
            say_hello(channel.clone(), hello.clone()).await.err()
        })
        .await;
    }
}

fn action() -> ForwardedAction {
    ForwardedAction::default()
}

/// Passes a connection on to the node. What follows the first message of the client waits until it may go.
async fn hold_back(node: String) -> (String, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (go_on, may_go) = oneshot::channel();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let node = TcpStream::connect(node).await.unwrap();
        let ((mut from_client, mut to_client), (mut from_node, mut to_node)) =
            (client.into_split(), node.into_split());
        tokio::spawn(async move { copy(&mut from_node, &mut to_client).await });
        let mut first = [0; 16 * 1024];
        let length = from_client.read(&mut first).await.unwrap();
        to_node.write_all(&first[..length]).await.unwrap();
        may_go.await.unwrap();
        let _ = copy(&mut from_client, &mut to_node).await;
    });
    (address, go_on)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_was_under_way_at_the_reload_does_not_escape_the_list() {
    let pki = Pki::new();
    let cluster = pki.one_node().await;
    let fired = pki.client("fired");
    let (address, go_on) = hold_back(cluster.address(0)).await;
    let mut socket = pki.dial(&address, Some(&fired), ALPN_FRAMED).await.unwrap();
    let mut bytes = GREETING.to_vec();
    assert!(plain::put(&mut bytes, plain::FRAME, &frame(vec![opening(60_000)]), BYTES_MAX));
    socket.write_all(&bytes).await.unwrap();

    pki.revoke(&fired);
    let mut config = cluster.configs[0].clone();
    config.tls = Some(pki.client_tls(1));
    cluster.nodes[0].as_ref().unwrap().credential_reloader().reload(&config).unwrap();
    go_on.send(()).unwrap();
    // A session would keep the connection open.
    let end = timeout(Duration::from_secs(5), socket.read_to_end(&mut Vec::new())).await;
    assert!(end.is_ok(), "the connection lives on");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_many_addresses_that_say_little_hold_up_no_handshake() {
    let pki = Pki::new();
    let cluster = pki.one_node().await;
    let address: SocketAddr = cluster.address(0).parse().unwrap();
    let mut stalled = Vec::new();
    // As many as there are turns.
    for last in 2..10 {
        for _ in 0..32 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))).unwrap();
            let mut socket = socket.connect(address).await.unwrap();
            socket.write_all(&[0x16]).await.unwrap();
            stalled.push(socket);
        }
    }
    let address = address.to_string();
    let dialling = pki.dial(&address, None, ALPN_FRAMED);
    let begun = Instant::now();
    timeout(PATIENCE, dialling).await.expect("no turn in time").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// Of HTTP/2: length, type, flags, stream.
async fn read_frame(socket: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    socket.read_exact(&mut head).await.unwrap();
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    socket.read_exact(&mut payload).await.unwrap();
    (head[3], payload)
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_at_a_peer_port_with_tls_gets_a_refusal_and_little_room() {
    const SETTINGS: u8 = 4;
    const WINDOW_UPDATE: u8 = 8;
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let pki = Pki::new();
    let cluster = Cluster::start_with(1, |config| pki.secure(config)).await;
    let peer_port = cluster.configs[0].nodes[0].peer.to_string();

    let large = ForwardedAction { request: vec![0; 4 << 20], ..Default::default() };
    let channel = Endpoint::from_shared(format!("http://{peer_port}")).unwrap().connect().await;
    let status = ForwardServiceClient::new(channel.unwrap()).forward(large).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert!(status.message().contains("[peer_tls]"), "{status}");

    let mut socket = TcpStream::connect(&peer_port).await.unwrap();
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let begun = Instant::now();
    let (kind, settings) = timeout(PATIENCE, read_frame(&mut socket)).await.unwrap();
    assert_eq!(kind, SETTINGS);
    let setting = |wanted: u16| {
        let mut pairs = settings.chunks(6);
        let pair = pairs.find(|pair| pair[..2] == wanted.to_be_bytes())?;
        Some(u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]))
    };
    assert!(setting(MAX_CONCURRENT_STREAMS).unwrap() <= 16);
    assert!(setting(INITIAL_WINDOW_SIZE).unwrap_or(65_535) <= 65_535);
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, socket.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "it stays for {:?}", begun.elapsed());
    let grown = rest.chunks(9).any(|head| head.len() > 3 && head[3] == WINDOW_UPDATE);
    assert!(!grown, "the window of the connection grows: {rest:02x?}");
}
