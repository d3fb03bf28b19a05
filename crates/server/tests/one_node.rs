//! A single node, spoken to as a client would.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use holdfast_proto::failure::REASON_KEY;
use holdfast_proto::peer_v1::peer_service_client::PeerServiceClient;
use holdfast_proto::v1::{
    AcquireRequest, CloseSessionRequest, KeepAliveManyRequest, KeepAliveRequest, ListRequest,
    ReleaseOutcome, ReleaseRequest, RenewRequest, StatusRequest, acquire_response, answer,
    operation,
};
use holdfast_server::{Node, StartError};
use support::{Cluster, OnStream, PATIENCE, acquire, connect, open};
use tokio::time::timeout;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

fn reason(status: &tonic::Status) -> String {
    let reason = status.metadata().get(REASON_KEY);
    reason.map(|reason| reason.to_str().unwrap().to_owned()).unwrap_or_default()
}

#[tokio::test]
async fn a_lock_is_acquired_read_renewed_and_released() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 5_000).await;

    let mut request = acquire(&session, 1, "wallet", 0);
    request.ttl_ms = Some(2_000);
    let answer = client.acquire(request).await.unwrap().into_inner();
    let Some(acquire_response::Outcome::Granted(grant)) = answer.outcome else {
        panic!("not granted: {answer:?}");
    };
    assert!(grant.token > 0);
    assert!(grant.fence.ends_with(&format!(".{}", grant.token)), "{}", grant.fence);

    let status = client
        .status(StatusRequest { name: "wallet".into(), request_id: 0 })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(status.holders.len(), 1);
    assert_eq!(status.holders[0].token, grant.token);
    assert_eq!(status.holders[0].public_session_id, support::public_id(&session));

    let renew = RenewRequest {
        session_id: session.clone(),
        request_id: 2,
        name: "wallet".into(),
        token: grant.token,
        ttl_ms: Some(3_000),
        ..Default::default()
    };
    assert!(client.renew(renew).await.unwrap().into_inner().deadline_ms > grant.deadline_ms);

    let alive = KeepAliveRequest { session_id: session.clone(), ..Default::default() };
    assert_eq!(client.keep_alive(alive).await.unwrap().into_inner().ttl_ms, 5_000);

    let release = ReleaseRequest {
        session_id: session.clone(),
        request_id: 3,
        name: "wallet".into(),
        token: grant.token,
        ..Default::default()
    };
    let released = client.release(release).await.unwrap().into_inner();
    assert_eq!(released.outcome(), ReleaseOutcome::Released);

    let close =
        CloseSessionRequest { session_id: session.clone(), request_id: 0, ..Default::default() };
    client.close_session(close).await.unwrap();
    let gone = client.acquire(acquire(&session, 4, "wallet", 0)).await.unwrap_err();
    assert_eq!((gone.code(), reason(&gone).as_str()), (Code::NotFound, "unknown_session"));
}

#[tokio::test]
async fn a_unary_acquire_waits_until_the_lock_is_free() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let (first, second) = (open(&mut client, 5_000).await, open(&mut client, 5_000).await);
    client.acquire(acquire(&first, 1, "wallet", 0)).await.unwrap();

    let busy = client.acquire(acquire(&second, 1, "wallet", 0)).await.unwrap().into_inner();
    assert!(matches!(busy.outcome, Some(acquire_response::Outcome::Busy(_))), "{busy:?}");

    let late = client.acquire(acquire(&second, 2, "wallet", 150)).await.unwrap().into_inner();
    assert!(matches!(late.outcome, Some(acquire_response::Outcome::TimedOut(_))), "{late:?}");

    let mut waiting_client = client.clone();
    let waiting = tokio::spawn(async move {
        waiting_client.acquire(acquire(&second, 3, "wallet", 10_000)).await.unwrap().into_inner()
    });
    while client
        .status(StatusRequest { name: "wallet".into(), request_id: 0 })
        .await
        .unwrap()
        .into_inner()
        .waiter_count
        == 0
    {
        tokio::task::yield_now().await;
    }
    let close = CloseSessionRequest { session_id: first, request_id: 0, ..Default::default() };
    client.close_session(close).await.unwrap();
    let granted = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(matches!(granted.outcome, Some(acquire_response::Outcome::Granted(_))), "{granted:?}");
}

#[tokio::test]
async fn invalid_requests_are_refused_with_their_reasons() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 5_000).await;
    for (request, expected) in [
        (acquire("", 1, "wallet", 0), "invalid_session_id"),
        (acquire(&session, 0, "wallet", 0), "invalid_request_id"),
        (acquire(&session, 1, "", 0), "invalid_name"),
        (acquire(&session, 1, "a\u{7}", 0), "invalid_name"),
        (acquire(&session, 1, "wallet", u64::MAX), "invalid_wait"),
        (AcquireRequest { mode: 77, ..acquire(&session, 1, "wallet", 0) }, "invalid_mode"),
    ] {
        let status = client.acquire(request).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, expected));
    }
    let status =
        client.list(ListRequest { page_size: 1_001, ..Default::default() }).await.unwrap_err();
    assert_eq!(reason(&status), "invalid_page");
}

#[tokio::test]
async fn a_keep_alive_without_valid_sessions_keeps_none_alive() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 5_000).await;
    for (session_ids, words) in [
        (vec![], "names 0 sessions; one takes 1 to 4096"),
        (vec![session.clone(); 4_097], "names 4097 sessions; one takes 1 to 4096"),
        (vec![session.clone(), "nonsense".to_owned()], "32 lower-case hexadecimal digits"),
    ] {
        let refused = client
            .keep_alive_many(KeepAliveManyRequest { session_ids, ..Default::default() })
            .await
            .unwrap_err();
        assert_eq!(
            (refused.code(), &*reason(&refused)),
            (Code::InvalidArgument, "invalid_session_id")
        );
        assert!(refused.message().contains(words), "{}", refused.message());
    }
    let session_ids = vec![session; 4_096];
    let answer = client
        .keep_alive_many(KeepAliveManyRequest { session_ids, ..Default::default() })
        .await
        .unwrap();
    assert_eq!(answer.into_inner().ttl_ms, vec![5_000; 4_096]);
}

#[tokio::test]
async fn a_listing_comes_in_pages_without_gaps() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 5_000).await;
    let names: Vec<String> = (0..25).map(|i| format!("job/{i:02}")).collect();
    for (name, request_id) in names.iter().zip(1..) {
        client.acquire(acquire(&session, request_id, name, 0)).await.unwrap();
    }
    client.acquire(acquire(&session, 99, "other", 0)).await.unwrap();

    let mut listed = Vec::new();
    let mut page = String::new();
    loop {
        let request =
            ListRequest { prefix: "job/".into(), page_size: 10, page, ..Default::default() };
        let answer = client.list(request).await.unwrap().into_inner();
        assert!(answer.locks.len() <= 10);
        listed.extend(answer.locks.into_iter().map(|lock| lock.name));
        page = answer.next_page;
        if page.is_empty() {
            break;
        }
    }
    assert_eq!(listed, names);
}

#[tokio::test]
async fn a_frame_of_many_operations_is_answered_in_full_and_the_wrong_ones_one_by_one() {
    let cluster = Cluster::start(1).await;
    let mut stream = OnStream::open(&mut cluster.client(0).await, 1_000).await;
    let mut kinds: Vec<operation::Kind> = (2..102)
        .map(|id| operation::Kind::Acquire(acquire("", id, &format!("lock-{id}"), 0)))
        .collect();
    kinds.push(operation::Kind::Acquire(acquire("", 102, "", 0)));
    stream.send(kinds).await;

    let mut answers = Vec::new();
    while answers.len() < 101 {
        answers.extend(stream.next().await.unwrap().answers);
    }
    for answer in answers {
        match answer.result.unwrap() {
            answer::Result::Acquire(_) => assert!(answer.request_id < 102),
            answer::Result::Failure(failure) => {
                assert_eq!(
                    (answer.request_id, failure.reason().wire_name().as_str()),
                    (102, "invalid_name")
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_stream_that_does_not_begin_with_its_session_ends_with_an_error() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let first = operation::Kind::Acquire(acquire("", 1, "wallet", 0));
    let mut stream = OnStream::begin(&mut client, String::new(), first).await;
    let status = stream.end().await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "invalid_frame"));

    let resume = holdfast_proto::v1::ResumeSessionRequest {
        session_id: support::new_session(),
        request_id: 1,
        ..Default::default()
    };
    let mut stream =
        OnStream::begin(&mut client, String::new(), operation::Kind::Resume(resume)).await;
    let answered = stream.next().await.unwrap();
    assert!(matches!(answered.answers[0].result, Some(answer::Result::Failure(_))));
    let status = stream.end().await;
    assert_eq!(reason(&status), "unknown_session");
}

#[tokio::test]
async fn a_frame_past_its_limits_is_refused() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let mut stream = OnStream::open(&mut client, 1_000).await;
    let keep_alive = operation::Kind::KeepAlive(KeepAliveRequest::default());
    stream.send(vec![keep_alive; 4_097]).await;
    let status = stream.end().await;
    assert_eq!(reason(&status), "invalid_frame");
    assert!(status.message().contains("4097"), "{status}");

    let mut stream = OnStream::open(&mut client, 1_000).await;
    let mut huge = acquire("", 2, "wallet", 0);
    huge.metadata = vec![0; 5 << 20];
    stream.send(vec![operation::Kind::Acquire(huge)]).await;
    let status = stream.end().await;
    assert_eq!(reason(&status), "message_too_large", "{status}");
}

#[tokio::test]
async fn closing_the_session_ends_its_stream() {
    let cluster = Cluster::start(1).await;
    let mut stream = OnStream::open(&mut cluster.client(0).await, 1_000).await;
    let close = CloseSessionRequest { request_id: 7, ..Default::default() };
    stream.send(vec![operation::Kind::Close(close)]).await;
    let frame = stream.next().await.unwrap();
    assert_eq!(frame.answers[0].request_id, 7, "{frame:?}");
    assert_eq!(stream.end().await.code(), Code::Ok);
}

#[tokio::test]
async fn a_client_at_the_wrong_port_gets_an_explanation() {
    let cluster = Cluster::start(1).await;
    let member = &cluster.configs[0].nodes[0];
    let status = connect(member.peer.as_str())
        .await
        .status(StatusRequest { name: "wallet".into(), request_id: 0 })
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let words = format!("this is the peer port of node 1; clients use {}", member.client);
    assert_eq!(status.message(), words);

    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", member.client))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let status = PeerServiceClient::new(channel).exchange(tokio_stream::empty()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("peers use"), "{status}");
}

#[tokio::test]
async fn health_says_serving_once_there_is_a_leader() {
    let cluster = Cluster::start(1).await;
    let endpoint =
        tonic::transport::Endpoint::from_shared(format!("http://{}", cluster.address(0))).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    for service in ["", "holdfast.v1.LockService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(
            answer.status(),
            tonic_health::pb::health_check_response::ServingStatus::Serving
        );
    }
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let cluster = Cluster::start(1).await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = cluster.configs[0].clone();
    config.data_dir = dir.path().to_owned();
    let error = Node::start(config).await.unwrap_err();
    assert!(matches!(error, StartError::AddressInUse { port: "client", .. }), "{error}");
}

#[tokio::test]
async fn locks_survive_a_restart_and_a_stopped_node_ends_its_streams() {
    let mut cluster = Cluster::start(1).await;
    let mut stream = OnStream::open(&mut cluster.client(0).await, 30_000).await;
    stream.send(vec![operation::Kind::Acquire(acquire("", 2, "wallet", 0))]).await;
    stream.next().await.unwrap();

    cluster.stop(0).await;
    let status = stream.end().await;
    assert_eq!(status.code(), Code::Unavailable, "{status}");

    cluster.nodes[0] = Some(Node::start(cluster.configs[0].clone()).await.unwrap());
    cluster.serving().await;
    let mut client = cluster.client(0).await;
    let status = client
        .status(StatusRequest { name: "wallet".into(), request_id: 0 })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(status.holders[0].public_session_id, support::public_id(&stream.session));
}

#[tokio::test]
async fn a_client_whose_process_ends_counts_as_disconnected_at_once() {
    let cluster = Cluster::start(1).await;
    let address = cluster.address(0);
    // A runtime of its own stands for a process: when it goes, its sockets close.
    let (session, process) = tokio::task::spawn_blocking(move || {
        let process = tokio::runtime::Runtime::new().unwrap();
        let stream =
            process.block_on(async { OnStream::open(&mut connect(&address).await, 200).await });
        (stream.session.clone(), (process, stream))
    })
    .await
    .unwrap();
    let mut client = cluster.client(0).await;
    assert!(support::find_session(&mut client, &session).await.unwrap().connected);

    let (runtime, stream) = process;
    runtime.shutdown_background();
    let lived_on = support::until_ended(&mut client, &session).await;
    assert!(lived_on < Duration::from_secs(5), "{lived_on:?}");
    drop(stream);
}

#[tokio::test]
async fn a_client_that_drops_or_ends_its_call_counts_as_disconnected() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;

    let stream = OnStream::open(&mut client, 200).await;
    let session = stream.session.clone();
    drop(stream);
    assert!(support::until_ended(&mut client, &session).await < Duration::from_secs(5));

    let OnStream { session, frames, mut answers } = OnStream::open(&mut client, 200).await;
    drop(frames);
    while let Ok(Some(_)) = answers.message().await {}
    assert!(support::until_ended(&mut client, &session).await < Duration::from_secs(5));
}
