//! Sessions on framed connections, spoken byte by byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use holdfast_proto::plain::{self, GREETING};
use holdfast_proto::v1::{
    AcquireRequest, ClientFrame, Failure, LeaderMoved, ListRequest, Notice, Operation, Reason,
    ReleaseRequest, ServerFrame, StatusRequest, answer, notice, operation,
};
use holdfast_server::TracingConfig;
use support::framed::{
    BYTES_MAX, FramedClient, Received, acquire, frame, heartbeat, opening, release,
};
use support::{Cluster, PATIENCE, eventually, http_get};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test]
async fn at_any_node_a_session_takes_a_lock_and_its_ping_is_answered() {
    let cluster = Cluster::start(3).await;
    for node in [cluster.leader(0).await, cluster.a_follower().await] {
        let mut stream = FramedClient::greet(&cluster.address(node)).await;
        stream.open().await;
        stream.take(&format!("wallet {node}")).await;
        stream.send(plain::PING, &()).await;
        assert_eq!(stream.next().await, Received::Frame(ServerFrame::default()));
    }
}

#[tokio::test]
async fn a_busy_client_is_answered_between_its_other_frames() {
    let cluster = Cluster::start(1).await;
    let mut stream = FramedClient::greet(&cluster.address(0)).await;
    stream.open().await;
    for round in 0..3 {
        stream.be_busy().await;
        stream.send(plain::PING, &()).await;
        assert_eq!(stream.next().await, Received::Frame(ServerFrame::default()));
        let answer = stream.ask(heartbeat(100 + round)).await;
        assert!(matches!(answer, answer::Result::KeepAlive(_)), "{answer:?}");
        let look = StatusRequest { name: "wallet".into(), request_id: 200 + round };
        let answer = stream.ask(operation::Kind::Status(look)).await;
        assert!(matches!(answer, answer::Result::Status(_)), "{answer:?}");
        let nameless = AcquireRequest { request_id: 300 + round, ..Default::default() };
        let answer = stream.ask(operation::Kind::Acquire(nameless)).await;
        let answer::Result::Failure(failure) = answer else { panic!("{answer:?}") };
        assert_eq!(failure.reason(), Reason::InvalidName);
    }
}

#[tokio::test]
async fn a_client_that_goes_frees_its_locks_long_before_its_ttl_ends() {
    let cluster = Cluster::start(1).await;
    for is_busy in [false, true] {
        let mut stream = FramedClient::greet(&cluster.address(0)).await;
        stream.open().await;
        stream.take("wallet").await;
        if is_busy {
            stream.be_busy().await;
        }
        drop(stream);
        let mut client = cluster.client(0).await;
        eventually("the lock is free", async || {
            let locks = client.list(ListRequest::default()).await.unwrap().into_inner().locks;
            locks.is_empty().then_some(())
        })
        .await;
    }
}

/// More than a node that does not lead has passed on when it notices that the client takes no more answers, and less than
/// a connection takes at once: a reset takes back what is still to be sent.
const FRAMES: u64 = 2_500;
const LONG_LINGER_MS: u64 = 60_000;

#[tokio::test]
async fn frames_sent_before_a_disconnect_are_carried_out() {
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader(0).await, cluster.a_follower().await);
    let more = |id| acquire(id, &id.to_string());
    let mixed = |id| if id % 100 < 80 { more(id) } else { heartbeat(id) };
    let kinds: [&dyn Fn(u64) -> operation::Kind; 3] = [&heartbeat, &more, &mixed];
    for (node, kind) in [leader, follower].iter().flat_map(|node| kinds.map(|kind| (*node, kind))) {
        let mut stream = FramedClient::greet(&cluster.address(node)).await;
        stream.open_with_linger(LONG_LINGER_MS).await;
        let token = stream.take("wallet").await;
        let others = (3..FRAMES).map(kind);
        let release = operation::Kind::Release(ReleaseRequest {
            request_id: FRAMES,
            name: "wallet".into(),
            token,
            ..Default::default()
        });
        let mut bytes = Vec::new();
        for (kind, acked_through) in others.chain([release]).zip(2..) {
            let operations = vec![Operation { kind: Some(kind) }];
            let frame = ClientFrame { operations, acked_through };
            assert!(plain::put(&mut bytes, plain::FRAME, &frame, BYTES_MAX));
        }
        let (mut reading, mut writing) = stream.socket.into_split();
        let mut answers = vec![0; 64 << 10];
        let read = async { while reading.read(&mut answers).await.unwrap() > 0 {} };
        tokio::select! {
            () = read => panic!("the node ended the stream"),
            written = writing.write_all(&bytes) => written.unwrap(),
        }
        let socket = reading.reunite(writing).unwrap();
        socket.set_zero_linger().unwrap();
        drop(socket);
        let mut client = cluster.client(node).await;
        eventually("the lock is free", async || {
            let look = StatusRequest { name: "wallet".into(), ..Default::default() };
            let status = client.status(look).await.ok()?.into_inner();
            (status.holder_count == 0).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn an_impossible_frame_ends_the_stream_with_an_error() {
    let cluster = Cluster::start(1).await;
    let mut stream = FramedClient::greet(&cluster.address(0)).await;
    stream.send(plain::END, &Failure::default()).await;
    assert_eq!(stream.reason_of_end().await, Reason::InvalidFrame);

    let mut stream = FramedClient::greet(&cluster.address(0)).await;
    stream.open().await;
    stream.socket.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    assert_eq!(stream.reason_of_end().await, Reason::InvalidFrame);

    let mut stream = FramedClient::greet(&cluster.address(0)).await;
    stream.open().await;
    stream.be_busy().await;
    stream.socket.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    assert_eq!(stream.reason_of_end().await, Reason::InvalidFrame);
}

#[tokio::test]
async fn a_node_that_stops_says_so() {
    for is_busy in [false, true] {
        let mut cluster = Cluster::start(1).await;
        let mut stream = FramedClient::greet(&cluster.address(0)).await;
        stream.open().await;
        if is_busy {
            stream.be_busy().await;
        }
        cluster.stop(0).await;
        let moved = notice::Kind::LeaderMoved(LeaderMoved::default());
        let moved =
            ServerFrame { notices: vec![Notice { kind: Some(moved) }], answers: Vec::new() };
        // Whichever of its halves was first.
        match stream.next().await {
            Received::End(failure) => assert_eq!(failure.reason(), Reason::ShuttingDown),
            Received::Frame(frame) => assert_eq!(frame, moved),
            Received::Nothing => panic!("it went without a word"),
        }
    }
}

#[tokio::test]
async fn a_release_that_is_sent_right_before_the_close_is_carried_out() {
    let cluster = Cluster::start(3).await;
    for node in [cluster.leader(0).await, cluster.a_follower().await] {
        let mut stream = FramedClient::greet(&cluster.address(node)).await;
        // It does not end with its connection.
        stream.open_with_linger(LONG_LINGER_MS).await;
        let token = stream.take("wallet").await;
        stream.send(plain::FRAME, &frame(vec![release(3, "wallet", token)])).await;
        drop(stream);
        let mut client = cluster.client(node).await;
        eventually("the lock is free", async || {
            let request = StatusRequest { name: "wallet".into(), ..Default::default() };
            let status = client.status(request).await.ok()?.into_inner();
            (status.holder_count == 0).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_without_a_session_that_pings_and_does_not_read_is_cut_off_with_an_error() {
    const STALLED: Duration = Duration::from_secs(2);
    let cluster = Cluster::start(1).await;
    let mut stream = FramedClient::greet(&cluster.address(0)).await;
    let mut pings = Vec::new();
    for _ in 0..4_096 {
        assert!(plain::put(&mut pings, plain::PING, &ClientFrame::default(), BYTES_MAX));
    }
    while let Ok(written) = timeout(STALLED, stream.socket.write_all(&pings)).await {
        written.unwrap();
    }
    let failure = loop {
        match stream.next().await {
            Received::Frame(_) => {}
            Received::End(failure) => break failure,
            Received::Nothing => panic!("it ended without a word"),
        }
    };
    assert_eq!(failure.reason(), Reason::Overloaded, "{failure:?}");
    assert!(failure.message.contains("were not read"), "{}", failure.message);
}

/// Each of them could leave 8 MiB unread if it were alone.
#[tokio::test]
async fn what_all_clients_leave_unread_is_counted_and_bounded() {
    const STALLED: Duration = Duration::from_secs(2);
    const CLIENTS: usize = 6;
    const BOUND: usize = 2 << 20;
    let cluster = Cluster::start_with(1, |config| {
        config.connections.unwritten_bytes_max = BOUND as u64;
    })
    .await;
    let name = "holdfast_answer_bytes_unwritten{port=\"client\"}";
    let mut pings = Vec::new();
    for _ in 0..4_096 {
        assert!(plain::put(&mut pings, plain::PING, &ClientFrame::default(), BYTES_MAX));
    }
    let (mut clients, mut most) = (Vec::new(), 0);
    for _ in 0..CLIENTS {
        let mut client = FramedClient::greet(&cluster.address(0)).await;
        client.open().await;
        // It is blocked if nothing moves. A machine that stands still for a moment is no sign of it.
        let (mut written, mut waiting) = (0, 0);
        loop {
            match timeout(STALLED, client.socket.write(&pings[written..])).await {
                Ok(Ok(bytes)) => written = (written + bytes) % pings.len(),
                Ok(Err(_)) => break,
                Err(_) => {
                    let before = std::mem::replace(&mut waiting, gauge(&cluster, 0, name).await);
                    if waiting > 0 && waiting == before {
                        break;
                    }
                }
            }
        }
        most = most.max(gauge(&cluster, 0, name).await);
        clients.push(client);
    }
    assert!(most > BOUND / 2, "{most} bytes were counted");
    // What one may have in any case, and what one visit can add.
    let of_each = (256 << 10) + (32 << 10);
    assert!(most < BOUND + CLIENTS * of_each, "{most} bytes wait");
    let last = clients.last_mut().unwrap();
    let end = loop {
        match last.next().await {
            Received::Frame(_) => {}
            end => break end,
        }
    };
    assert!(matches!(&end, Received::End(why) if why.reason() == Reason::Overloaded), "{end:?}");
    drop(clients);
    eventually("all is given back", async || (gauge(&cluster, 0, name).await == 0).then_some(()))
        .await;
}

#[tokio::test]
async fn a_client_that_sends_and_does_not_read_is_cut_off_with_an_error() {
    const READS_PER_FRAME: u64 = 32;
    let cluster = Cluster::start(1).await;
    let mut stream = FramedClient::greet(&cluster.address(0)).await;
    stream.open().await;
    let long = "x".repeat(512);
    for request_id in 2..12 {
        let shared = AcquireRequest {
            request_id,
            name: long.clone(),
            mode: holdfast_proto::v1::Mode::Shared.into(),
            metadata: vec![b'x'; 1_024],
            ..Default::default()
        };
        stream.ask(operation::Kind::Acquire(shared)).await;
    }
    let streams = async || gauge(&cluster, 0, "holdfast_session_streams").await;
    eventually("it is served", async || (streams().await == 1).then_some(())).await;
    let asking = async {
        for first in (0..).map(|number| 100 + number * READS_PER_FRAME) {
            let reads = (first..first + READS_PER_FRAME).map(|request_id| {
                operation::Kind::Status(StatusRequest { name: long.clone(), request_id })
            });
            stream.send(plain::FRAME, &frame(reads.collect())).await;
        }
    };
    let cut_off = eventually("it is cut off", async || (streams().await == 0).then_some(()));
    tokio::select! {
        () = asking => panic!("it asks without end"),
        () = cut_off => {}
    }
    let failure = loop {
        match stream.next().await {
            Received::Frame(_) => {}
            Received::End(failure) => break failure,
            Received::Nothing => panic!("it ended without a word"),
        }
    };
    assert_eq!(failure.reason(), Reason::Overloaded);
    assert!(failure.message.contains("were not read"), "{}", failure.message);
    // Others are served.
    let mut other = FramedClient::greet(&cluster.address(0)).await;
    other.open().await;
    other.take("wallet").await;
}

#[tokio::test]
async fn half_a_greeting_is_closed_in_time_and_another_greeting_at_once() {
    const FIRST_REQUEST_MS: u64 = 300;
    let cluster = Cluster::start_with(1, |config| {
        config.connections.first_request_ms = FIRST_REQUEST_MS;
    })
    .await;
    for greeting in [&GREETING[..2], &GREETING[..], &[GREETING[0], b'x', b'y', b'z']] {
        let mut socket = TcpStream::connect(cluster.address(0)).await.unwrap();
        socket.write_all(greeting).await.unwrap();
        let mut answer = Vec::new();
        timeout(PATIENCE, socket.read_to_end(&mut answer)).await.unwrap().unwrap();
        let expected = if greeting == GREETING { greeting } else { b"" };
        assert_eq!(answer, expected);
    }
    eventually("nothing of them is left", async || (framed(&cluster, 0).await == 0).then_some(()))
        .await;
}

/// How many framed connections the node's shard owns.
async fn framed(cluster: &Cluster, node: usize) -> usize {
    gauge(cluster, node, "holdfast_framed_connections").await
}

async fn gauge(cluster: &Cluster, node: usize, name: &str) -> usize {
    let (_, page) = http_get(&cluster.http_address(node), "/metrics").await;
    let line = page.lines().find(|line| line.split(' ').next() == Some(name));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("there is such a metric")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_shard_owns_connections_from_the_greeting_on_with_traces_and_several_workers() {
    const CLIENTS: usize = 20;
    let cluster = Cluster::start_with(3, |config| {
        config.tracing =
            Some(TracingConfig { endpoint: "http://127.0.0.1:1".to_owned(), tls: None });
    })
    .await;
    for node in [cluster.leader(0).await, cluster.a_follower().await] {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(FramedClient::greet(&cluster.address(node)).await);
        }
        let owned = async || (framed(&cluster, node).await == CLIENTS).then_some(());
        eventually("the shard owns them", owned).await;
        for client in &mut clients {
            client.open().await;
        }
        for (number, client) in clients.iter_mut().enumerate() {
            client.take(&format!("wallet {node} {number}")).await;
            client.be_busy().await;
        }
        eventually("the shard still owns them", owned).await;
        drop(clients);
        eventually("they are closed", async || (framed(&cluster, node).await == 0).then_some(()))
            .await;
    }
}

#[tokio::test]
async fn a_session_opened_without_a_leader_waits_for_one_or_fails() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader(0).await;
    let [first, second] = [(leader + 1) % 3, (leader + 2) % 3];
    cluster.stop(leader).await;
    // Whichever of the two follows when it comes.
    let mut stream = FramedClient::greet(&cluster.address(first)).await;
    stream.open().await;
    stream.take("wallet").await;
    cluster.stop(second).await;
    eventually("there is no quorum", async || {
        let mut stream = FramedClient::greet(&cluster.address(first)).await;
        stream.send(plain::FRAME, &frame(vec![opening(0)])).await;
        loop {
            match stream.next().await {
                Received::Frame(_) => {}
                Received::End(failure) => {
                    return (failure.reason() == Reason::NoQuorum).then_some(());
                }
                Received::Nothing => return None,
            }
        }
    })
    .await;
}
