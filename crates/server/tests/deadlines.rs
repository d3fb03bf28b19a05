//! A call whose `grpc-timeout` passes. tonic's client has a timer of its own that comes first, so these calls are made by
//! hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod support;

use holdfast_proto::v1::AcquireRequest;
use prost::Message;
use support::{Cluster, PATIENCE, acquire, open};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::codegen::http::{HeaderMap, Request};

/// The headers that answer one acquire with this deadline.
async fn acquire_within(address: &str, request: &AcquireRequest, grpc_timeout: &str) -> HeaderMap {
    let socket = TcpStream::connect(address).await.unwrap();
    let (mut calls, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let head = Request::post(format!("http://{address}/holdfast.v1.LockService/Acquire"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", grpc_timeout)
        .body(())
        .unwrap();
    let (answer, mut body) = calls.send_request(head, false).unwrap();
    let message = request.encode_to_vec();
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    body.send_data(frame.into(), true).unwrap();
    let answer = timeout(PATIENCE, answer).await.expect("no answer in time").unwrap();
    answer.headers().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_deadline_passes_fails_with_a_reason() {
    const DEADLINE_EXCEEDED: &str = "4";
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let holder = open(&mut client, 60_000).await;
    client.acquire(acquire(&holder, 1, "a", 0)).await.unwrap();
    let deadlines = ["1m", "5m", "20m", "50m", "100m", "101m", "102m", "250000u", "1S"];
    for deadline in deadlines {
        // A session that waits twice would wait for itself.
        let waiter = open(&mut client, 60_000).await;
        let request = acquire(&waiter, 1, "a", 60_000);
        let headers = acquire_within(&cluster.address(0), &request, deadline).await;
        let reported = |key: &str| headers.get(key).map(|value| value.to_str().unwrap());
        assert_eq!(reported("grpc-status"), Some(DEADLINE_EXCEEDED), "{deadline}: {headers:?}");
        assert_eq!(reported("holdfast-reason"), Some("deadline_exceeded"), "{headers:?}");
        assert_eq!(reported("holdfast-retryable"), Some("true"), "{headers:?}");
        assert_eq!(reported("holdfast-may-have-happened"), Some("true"), "{headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_answered_in_time_is_not_cut_short() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 60_000).await;
    let request = acquire(&session, 1, "a", 0);
    let headers = acquire_within(&cluster.address(0), &request, "10S").await;
    assert!(!headers.contains_key("grpc-status"), "the status is in the trailers: {headers:?}");
}
