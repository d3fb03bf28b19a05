//! The HTTP port of real nodes: probes, limits, and the end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use support::{Cluster, PATIENCE, eventually, http_get};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const SERVICES: [&str; 6] = [
    "",
    "holdfast.v1.LockService",
    "holdfast.v1.ClusterService",
    "holdfast.v1.OperatorService",
    "holdfast.v1.WatchService",
    "holdfast.v1.ElectionService",
];

async fn grpc_health(cluster: &Cluster, index: usize, service: &str) -> ServingStatus {
    let endpoint = Endpoint::from_shared(format!("http://{}", cluster.address(index))).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let request = HealthCheckRequest { service: service.to_owned() };
    client.check(request).await.unwrap().into_inner().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_ready_while_it_has_a_leader_and_alive_without() {
    let mut cluster = Cluster::start(3).await;
    for index in 0..3 {
        let address = cluster.http_address(index);
        assert_eq!(http_get(&address, "/readyz").await, (200, "serving\n".to_owned()));
        assert_eq!(http_get(&address, "/healthz").await, (200, "alive\n".to_owned()));
        for service in SERVICES {
            let status = grpc_health(&cluster, index, service).await;
            assert_eq!(status, ServingStatus::Serving, "{service}");
        }
    }
    cluster.stop(0).await;
    cluster.stop(1).await;
    let address = cluster.http_address(2);
    let words = eventually("the node says that it cannot serve", async || {
        let (code, words) = http_get(&address, "/readyz").await;
        (code == 503).then_some(words)
    })
    .await;
    assert!(words.contains("leader") || words.contains("leads"), "{words}");
    assert_eq!(http_get(&address, "/healthz").await.0, 200);
    // Told one after the other, just after the page says it.
    for service in SERVICES {
        eventually(&format!("{service} does not serve"), async || {
            let status = grpc_health(&cluster, 2, service).await;
            (status == ServingStatus::NotServing).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_events_ends_with_the_node() {
    let mut cluster = Cluster::start(1).await;
    let address = cluster.http_address(0);
    assert_eq!(http_get(&address, "/nowhere").await.0, 404);

    let mut waiting = TcpStream::connect(&address).await.unwrap();
    let request = format!("GET /api/events HTTP/1.1\r\nhost: {address}\r\n\r\n");
    waiting.write_all(request.as_bytes()).await.unwrap();
    let mut byte = [0; 1];
    timeout(PATIENCE, waiting.read_exact(&mut byte)).await.expect("no answer in time").unwrap();
    timeout(PATIENCE, cluster.stop(0)).await.expect("an open connection holds the node up");
    let _ = timeout(PATIENCE, waiting.read_to_end(&mut Vec::new())).await.expect("it goes on");
    assert!(TcpStream::connect(&address).await.is_err(), "the port is still open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_too_large_is_refused_and_silent_connections_give_way() {
    let cluster = Cluster::start(1).await;
    let address = cluster.http_address(0);
    let path = format!("/{}", "x".repeat(100_000));
    let (code, _) = http_get(&address, &path).await;
    assert!(code == 431 || code == 414, "{code}");

    let mut open = Vec::new();
    for _ in 0..256 {
        open.push(TcpStream::connect(&address).await.unwrap());
    }
    // Those that said nothing for the longest gave way.
    let mut byte = [0; 1];
    let closed = timeout(Duration::from_secs(5), open[0].read(&mut byte)).await;
    assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{closed:?}");
    assert_eq!(http_get(&address, "/healthz").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_can_do_without() {
    let cluster = Cluster::start_with(1, |config| config.set_http(None)).await;
    assert_eq!(cluster.nodes[0].as_ref().unwrap().http_address(), None);
}
