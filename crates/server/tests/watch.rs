//! Watching: a snapshot, then every change once and in order, from any node and over a change of leader.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod support;

use holdfast_proto::failure::REASON_KEY;
use holdfast_proto::v1::operator_service_client::OperatorServiceClient;
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_proto::v1::{
    EventKind, EventPosition, FreezeRequest, Intervention, ReleaseRequest, WatchEvent, WatchFrame,
    WatchRequest, acquire_response,
};
use support::{Client, Cluster, PATIENCE, acquire, eventually, open};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

async fn channel(cluster: &Cluster, node: usize) -> Channel {
    let address = format!("http://{}", cluster.address(node));
    Endpoint::from_shared(address).unwrap().connect().await.unwrap()
}

async fn watch(cluster: &Cluster, node: usize, request: WatchRequest) -> Streaming<WatchFrame> {
    let mut client = WatchServiceClient::new(channel(cluster, node).await);
    client.watch(request).await.unwrap().into_inner()
}

fn under(prefix: &str) -> WatchRequest {
    WatchRequest { prefix: prefix.into(), ..Default::default() }
}

async fn next(stream: &mut Streaming<WatchFrame>) -> Result<WatchFrame, Status> {
    match timeout(PATIENCE, stream.message()).await.expect("nothing came in time") {
        Ok(frame) => Ok(frame.expect("the watch ended without words")),
        Err(status) => Err(status),
    }
}

/// The next `count` events, and the position after them.
async fn events(
    stream: &mut Streaming<WatchFrame>,
    count: usize,
) -> (Vec<WatchEvent>, EventPosition) {
    let mut events = Vec::new();
    let mut position = None;
    while events.len() < count {
        let frame = next(stream).await.unwrap();
        events.extend(frame.events);
        position = frame.position.or(position);
    }
    assert_eq!(events.len(), count, "{events:?}");
    (events, position.unwrap())
}

fn kinds(events: &[WatchEvent]) -> Vec<(EventKind, &str)> {
    events.iter().map(|event| (event.kind(), event.names[0].as_str())).collect()
}

async fn take(client: &mut Client, session: &str, request: u64, name: &str) -> u64 {
    let answer = client.acquire(acquire(session, request, name, 0)).await.unwrap().into_inner();
    match answer.outcome {
        Some(acquire_response::Outcome::Granted(grant)) => grant.token,
        other => unreachable!("not granted: {other:?}"),
    }
}

async fn give_back(client: &mut Client, session: &str, request_id: u64, name: &str, token: u64) {
    let request = ReleaseRequest {
        session_id: session.into(),
        request_id,
        name: name.into(),
        token,
        ..Default::default()
    };
    client.release(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_sends_a_snapshot_and_then_each_event_once_and_in_order() {
    let cluster = Cluster::start(3).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 10_000).await;
    let token = take(&mut client, &session, 1, "eu/a").await;
    take(&mut client, &session, 2, "us/a").await;

    // Every node serves it; one that does not lead forwards it.
    for node in 0..3 {
        let mut stream = watch(&cluster, node, under("eu/")).await;
        let frame = next(&mut stream).await.unwrap();
        assert!(frame.snapshot_complete && frame.events.is_empty(), "{frame:?}");
        assert_eq!(frame.locks.len(), 1);
        assert_eq!((frame.locks[0].name.as_str(), frame.locks[0].token), ("eu/a", token));
    }

    let mut stream = watch(&cluster, 1, under("eu/")).await;
    next(&mut stream).await.unwrap();
    give_back(&mut client, &session, 3, "eu/a", token).await;
    take(&mut client, &session, 4, "us/b").await;
    let again = take(&mut client, &session, 5, "eu/a").await;
    let mut operator = OperatorServiceClient::new(channel(&cluster, 2).await);
    let intervention = Some(Intervention { by: "olga".into(), reason: "a move".into() });
    let freeze = FreezeRequest { intervention, prefix: "eu/".into(), ttl_ms: 60_000 };
    operator.freeze(freeze).await.unwrap();

    let (reported, _) = events(&mut stream, 3).await;
    let expected =
        [(EventKind::Released, "eu/a"), (EventKind::Granted, "eu/a"), (EventKind::Frozen, "eu/")];
    assert_eq!(kinds(&reported), expected);
    assert_eq!((reported[0].token, reported[1].token), (token, again));
    assert!(reported.is_sorted_by_key(|event| event.position.map(|at| (at.index, at.number))));
    assert_eq!(
        (reported[2].by.as_str(), reported[2].detail.as_str()),
        ("olga", "freeze for 60000ms: a move")
    );
    // The secret is not shown, the public id is.
    assert_eq!(reported[1].public_session_id.len(), 16);
    assert_ne!(reported[1].public_session_id, session[..16]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_at_the_next_leader_without_a_gap() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader(0).await;
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    let mut client = cluster.client(others[0]).await;
    let session = open(&mut client, 30_000).await;
    let mut stream = watch(&cluster, leader, under("w")).await;
    assert!(next(&mut stream).await.unwrap().snapshot_complete);
    take(&mut client, &session, 1, "w1").await;
    let (reported, position) = events(&mut stream, 1).await;
    assert_eq!(kinds(&reported), [(EventKind::Granted, "w1")]);

    // What happens while no client watches is told afterwards.
    take(&mut client, &session, 2, "w2").await;
    cluster.stop(leader).await;
    let ended = loop {
        match next(&mut stream).await {
            Ok(_) => {}
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
    eventually("the next leader grants", async || {
        client.acquire(acquire(&session, 3, "w3", 0)).await.ok()
    })
    .await;
    let resumed = WatchRequest { after: Some(position), ..under("w") };
    let mut stream = watch(&cluster, others[1], resumed).await;
    let (reported, _) = events(&mut stream, 2).await;
    assert_eq!(kinds(&reported), [(EventKind::Granted, "w2"), (EventKind::Granted, "w3")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_that_is_not_kept_or_never_was_is_compacted() {
    let cluster = Cluster::start_with(1, |config| config.snapshot_every_entries = 100).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 30_000).await;
    for request in 1..=300 {
        take(&mut client, &session, request, &format!("w{request}")).await;
    }
    // After a restart what the snapshot covers is no longer known as events.
    let mut cluster = cluster;
    cluster.stop(0).await;
    cluster.restart(0).await;
    for index in [1, u64::MAX / 2] {
        let after = Some(EventPosition { group: 1, index, number: 0 });
        let mut stream = watch(&cluster, 0, WatchRequest { after, ..under("") }).await;
        let status = next(&mut stream).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
        assert_eq!(status.metadata().get(REASON_KEY).unwrap(), "compacted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_reader_that_does_not_read_is_cut_off_with_an_error_and_delays_no_other() {
    let cluster = Cluster::start_with(1, |config| config.events_kept = 100).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 30_000).await;
    let mut stream = watch(&cluster, 0, under("w")).await;
    next(&mut stream).await.unwrap();
    // Events with large metadata fill the connection's window, and then the ring.
    let mut request = acquire(&session, 1, "w", 0);
    request.metadata = vec![7; 1_024];
    for _ in 0..1_000 {
        request.request_id += 1;
        request.acked_through = request.request_id - 1;
        request.name = format!("w{}", request.request_id);
        client.acquire(request.clone()).await.unwrap();
    }
    let ended = loop {
        match next(&mut stream).await {
            Ok(_) => {}
            Err(status) => break status,
        }
    };
    assert_eq!(ended.metadata().get(REASON_KEY).unwrap(), "slow_reader", "{ended:?}");
}
