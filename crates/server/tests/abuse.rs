//! Clients that take much and give nothing: what they take is bounded, and others are served meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_proto::v1::{AcquireRequest, ReleaseRequest, acquire_response};
use holdfast_proto::v1::{ListRequest, WatchRequest};
use holdfast_server::ConnectionsConfig;
use prost::Message;
use support::{Client, Cluster, PATIENCE, eventually, http_get, open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tonic::codegen::http;
use tonic::transport::Endpoint;

/// What another client's operation may take meanwhile.
const SOON: Duration = Duration::from_secs(2);

async fn with(change: impl Fn(&mut ConnectionsConfig)) -> Cluster {
    Cluster::start_with(1, |config| change(&mut config.connections)).await
}

async fn metric(cluster: &Cluster, name: &str) -> u64 {
    let (_, page) = http_get(&cluster.http_address(0), "/metrics").await;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
}

async fn of_clients(cluster: &Cluster, name: &str) -> u64 {
    metric(cluster, &format!("holdfast_{name}{{port=\"client\"}}")).await
}

/// Speaks HTTP/2 and nothing else.
async fn speak_http2(cluster: &Cluster) -> SendRequest<Bytes> {
    let socket = TcpStream::connect(cluster.address(0)).await.unwrap();
    let (requests, connection) = h2::client::Builder::new()
        .initial_max_send_streams(100_000)
        .handshake::<_, Bytes>(socket)
        .await
        .unwrap();
    tokio::spawn(connection);
    requests
}

async fn begin(
    requests: &SendRequest<Bytes>,
    call: &str,
    first: Vec<u8>,
) -> (ResponseFuture, SendStream<Bytes>) {
    let request = http::Request::post(format!("http://node/holdfast.v1.{call}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let mut requests = requests.clone().ready().await.unwrap();
    let (response, mut stream) = requests.send_request(request, false).unwrap();
    if !first.is_empty() {
        stream.send_data(Bytes::from(first), false).unwrap();
    }
    (response, stream)
}

/// The beginning of a message that claims to have so many bytes.
fn claim(bytes: u32, sent: usize) -> Vec<u8> {
    let mut message = vec![0];
    message.extend(bytes.to_be_bytes());
    message.extend(vec![0; sent]);
    message
}

/// The reason that a call was refused for, once it was.
async fn refusal(response: ResponseFuture) -> String {
    let Ok(response) = timeout(PATIENCE, response).await.expect("it never ends") else {
        return "reset".to_owned();
    };
    let text = |headers: &http::HeaderMap| {
        headers.get("holdfast-reason").map(|reason| reason.to_str().unwrap().to_owned())
    };
    if let Some(reason) = text(response.headers()) {
        return reason;
    }
    let mut body: RecvStream = response.into_body();
    while let Some(data) = timeout(PATIENCE, body.data()).await.expect("it never ends") {
        let Ok(data) = data else { return "reset".to_owned() };
        let _ = body.flow_control().release_capacity(data.len());
    }
    let trailers = body.trailers().await.ok().flatten();
    trailers.as_ref().and_then(text).unwrap_or_else(|| "none".to_owned())
}

/// Takes and releases a lock, again and again, each soon enough.
async fn works(client: &mut Client, session: &str, requests: std::ops::Range<u64>) {
    for request_id in requests.step_by(2) {
        let begun = Instant::now();
        let acquire = AcquireRequest {
            session_id: session.to_owned(),
            request_id,
            name: "somebody-else".to_owned(),
            acked_through: request_id - 1,
            ..Default::default()
        };
        let answer = client.acquire(acquire).await.unwrap().into_inner();
        let Some(acquire_response::Outcome::Granted(grant)) = answer.outcome else {
            panic!("{answer:?}")
        };
        let release = ReleaseRequest {
            session_id: session.to_owned(),
            request_id: request_id + 1,
            name: "somebody-else".to_owned(),
            token: grant.token,
            ..Default::default()
        };
        client.release(release).await.unwrap();
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_limited_and_closed_and_keep_no_client_out() {
    let cluster = with(|limits| {
        (limits.max, limits.idle_per_address_max, limits.first_request_ms) = (60, 20, 3_000);
    })
    .await;
    let mut silent = Vec::new();
    for number in 0..200 {
        let mut socket = TcpStream::connect(cluster.address(0)).await.unwrap();
        if number % 2 == 0 {
            // The preface, and SETTINGS without any.
            let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
            // One that was closed already cannot be written to.
            let _ = socket.write_all(hello).await;
        }
        silent.push(socket);
    }
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 60_000).await;
    works(&mut client, &session, 10..20).await;
    assert!(of_clients(&cluster, "idle_connections").await <= 21);
    assert!(of_clients(&cluster, "idle_connections_closed_total").await >= 150);
    for mut socket in silent {
        let mut read = Vec::new();
        let ended = timeout(PATIENCE, socket.read_to_end(&mut read)).await;
        assert!(ended.is_ok(), "a connection that says nothing is never closed");
    }
    works(&mut client, &session, 20..24).await;
    assert_eq!(of_clients(&cluster, "connections").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimed_length_takes_no_memory_and_an_incomplete_call_ends() {
    let cluster = with(|limits| limits.request_ms = 2_000).await;
    let requests = speak_http2(&cluster).await;
    let mut calls = Vec::new();
    for _ in 0..500 {
        calls.push(begin(&requests, "LockService/Acquire", claim(500_000, 8)).await);
    }
    eventually("all have come", async || {
        (of_clients(&cluster, "request_bytes_in_flight").await == 500 * 13).then_some(())
    })
    .await;
    let too_large = begin(&requests, "LockService/Acquire", claim(4_000_000, 8)).await;
    assert_eq!(refusal(too_large.0).await, "message_too_large");
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 60_000).await;
    works(&mut client, &session, 10..20).await;
    let mut streams = Vec::new();
    for (response, stream) in calls {
        assert_eq!(refusal(response).await, "invalid_frame");
        streams.push(stream);
    }
    assert_eq!(of_clients(&cluster, "request_bytes_in_flight").await, 0);
    assert_eq!(of_clients(&cluster, "unfinished_requests").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_calls_that_are_never_completed_are_bounded() {
    const BYTES_MAX: u64 = 1_000_000;
    let cluster = with(|limits| limits.bytes_per_connection_max = BYTES_MAX).await;
    let requests = speak_http2(&cluster).await;
    let mut calls = Vec::new();
    for _ in 0..60 {
        calls.push(begin(&requests, "LockService/Acquire", claim(500_000, 50_000)).await);
    }
    eventually("some are refused", async || {
        let refused = of_clients(&cluster, "requests_refused_by_limits_total").await;
        let used = of_clients(&cluster, "request_bytes_in_flight").await;
        assert!(used <= BYTES_MAX, "{used}");
        (refused >= 20).then_some(())
    })
    .await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 60_000).await;
    works(&mut client, &session, 10..20).await;
    drop((calls, requests));
    eventually("all is as before", async || {
        (of_clients(&cluster, "request_bytes_in_flight").await == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_calls_that_open_no_session_are_limited_and_end() {
    let cluster = with(|limits| {
        (limits.unfinished_per_connection_max, limits.first_request_ms) = (50, 20_000);
    })
    .await;
    let requests = speak_http2(&cluster).await;
    let mut calls = Vec::new();
    for _ in 0..250 {
        calls.push(begin(&requests, "LockService/Session", Vec::new()).await);
    }
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 60_000).await;
    works(&mut client, &session, 10..20).await;
    assert!(of_clients(&cluster, "unfinished_requests").await <= 50);
    let (mut refused, mut ended, mut streams) = (0, 0, Vec::new());
    for (response, stream) in calls {
        match refusal(response).await.as_str() {
            "overloaded" => refused += 1,
            // The words, or the reset that follows them.
            "invalid_frame" | "reset" => ended += 1,
            other => panic!("{other}"),
        }
        streams.push(stream);
    }
    assert_eq!((refused, ended), (200, 50));
    assert_eq!(of_clients(&cluster, "unfinished_requests").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_not_read_are_counted_and_bounded() {
    const CALLS: usize = 100;
    const UNWRITTEN_MAX: u64 = 1 << 20;
    let cluster = with(|limits| limits.unwritten_bytes_per_connection_max = UNWRITTEN_MAX).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 60_000).await;
    for request_id in 1..=500 {
        let acquire = AcquireRequest {
            session_id: session.clone(),
            request_id,
            name: format!("{}{request_id}", "long/".repeat(100)),
            acked_through: request_id - 1,
            ..Default::default()
        };
        client.acquire(acquire).await.unwrap();
    }
    let request = ListRequest { page_size: 1_000, ..Default::default() };
    let answer_bytes = client.list(request.clone()).await.unwrap().get_ref().encoded_len() as u64;
    assert!(answer_bytes > 200_000 && CALLS as u64 * answer_bytes > 10 * UNWRITTEN_MAX);

    let requests = speak_http2(&cluster).await;
    let mut message = claim(request.encoded_len() as u32, 0);
    message.extend(request.encode_to_vec());
    let (mut unread, mut refused) = (Vec::new(), 0);
    for _ in 0..CALLS {
        let (response, mut stream) = begin(&requests, "LockService/List", message.clone()).await;
        stream.send_data(Bytes::new(), true).unwrap();
        let response = timeout(PATIENCE, response).await.unwrap().unwrap();
        let reason = response.headers().get("holdfast-reason");
        refused += usize::from(reason.is_some_and(|reason| reason == "overloaded"));
        unread.push(response.into_body());
        let unwritten = of_clients(&cluster, "answer_bytes_unwritten").await;
        assert!(unwritten <= UNWRITTEN_MAX + answer_bytes, "{unwritten}");
    }
    // The transport takes something of each.
    assert!(refused > CALLS / 2, "{refused}");
    works(&mut client, &session, 501..521).await;
    // Once it reads, it is answered again.
    drop(unread);
    eventually("all is written or dropped", async || {
        (of_clients(&cluster, "answer_bytes_unwritten").await == 0).then_some(())
    })
    .await;
    let (response, mut stream) = begin(&requests, "LockService/List", message).await;
    stream.send_data(Bytes::new(), true).unwrap();
    assert_eq!(refusal(response).await, "none");
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_are_not_read_make_no_frames_and_end_when_their_events_are_forgotten() {
    const WATCHES: usize = 40;
    const UNWRITTEN_MAX: u64 = 65_536;
    // One frame is made when the connection has less than it may.
    const FRAME_MAX: u64 = 80_000;
    let cluster = Cluster::start_with(1, |config| {
        config.events_kept = 200;
        config.connections.unwritten_bytes_per_connection_max = UNWRITTEN_MAX;
    })
    .await;
    let requests = speak_http2(&cluster).await;
    let request = WatchRequest { without_snapshot: true, ..Default::default() }.encode_to_vec();
    let mut unread = Vec::new();
    for _ in 0..WATCHES {
        let mut message = claim(request.len() as u32, 0);
        message.extend(&request);
        let (response, mut stream) = begin(&requests, "WatchService/Watch", message).await;
        stream.send_data(Bytes::new(), true).unwrap();
        unread.push(timeout(PATIENCE, response).await.unwrap().unwrap().into_body());
    }
    let endpoint = Endpoint::from_shared(format!("http://{}", cluster.address(0))).unwrap();
    let mut reading = WatchServiceClient::new(endpoint.connect().await.unwrap());
    let all = WatchRequest { without_snapshot: true, ..Default::default() };
    let mut reading = reading.watch(all).await.unwrap().into_inner();
    let events_read = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&events_read);
    tokio::spawn(async move {
        while let Ok(Some(frame)) = reading.message().await {
            counted.fetch_add(frame.events.len() as u64, Ordering::Relaxed);
        }
    });
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 60_000).await;
    let mut request_id = 1;
    let begun = Instant::now();
    while metric(&cluster, "holdfast_watches_left_behind_total").await < WATCHES as u64 {
        assert!(begun.elapsed() < 3 * PATIENCE, "they are never cut off");
        for _ in 0..20 {
            request_id += 1;
            let acquire = AcquireRequest {
                session_id: session.clone(),
                request_id,
                name: format!("lock-{request_id}"),
                metadata: vec![7; 1_000],
                acked_through: request_id - 1,
                ..Default::default()
            };
            client.acquire(acquire).await.unwrap();
        }
        let unwritten = of_clients(&cluster, "answer_bytes_unwritten").await;
        assert!(unwritten < UNWRITTEN_MAX + FRAME_MAX, "{unwritten}");
    }
    assert_eq!(metric(&cluster, "holdfast_watch_streams").await, 1, "the one that reads");
    eventually("the one that reads was told all", async || {
        (events_read.load(Ordering::Relaxed) >= request_id - 1).then_some(())
    })
    .await;
    drop((unread, requests));
}

/// The node accepts connections in the order in which they came. So how soon it takes in silent ones decides how long a
/// probe behind them waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_silent_connections_to_the_http_port_keeps_no_probe_waiting() {
    const CONNECTIONS: usize = 1_500;
    let cluster = Cluster::start(1).await;
    let address = cluster.http_address(0);
    let mut connecting = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let address = address.clone();
        connecting.spawn(async move { TcpStream::connect(&address).await });
    }
    let silent = connecting.join_all().await;
    assert!(silent.iter().all(Result::is_ok), "{silent:?}");
    let begun = Instant::now();
    assert_eq!(http_get(&address, "/healthz").await.0, 200);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_requests_to_the_http_port_keep_no_probe_waiting() {
    let cluster = Cluster::start(1).await;
    let address = cluster.http_address(0);
    let mut half_sent = Vec::new();
    for number in 0..300 {
        let mut socket = TcpStream::connect(&address).await.unwrap();
        let head: &[u8] = match number % 3 {
            0 => b"",
            1 => b"GET /healthz HTTP/1.1\r\nhost: x\r\n",
            _ => b"POST /api/break HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n",
        };
        let _ = socket.write_all(head).await;
        half_sent.push(socket);
        if number % 10 == 9 {
            let begun = Instant::now();
            assert_eq!(http_get(&address, "/healthz").await.0, 200);
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        }
    }
    for mut socket in half_sent {
        let mut read = Vec::new();
        let ended = timeout(PATIENCE, socket.read_to_end(&mut read)).await;
        assert!(ended.is_ok(), "a half-sent request is never closed");
    }
}
