//! A cluster of three: any node answers, and the loss of one is survived.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use holdfast_proto::v1::{
    CloseSessionRequest, ClusterStatusRequest, KeepAliveManyRequest, ResumeSessionRequest,
    StatusRequest, acquire_response, answer, notice, operation,
};
use holdfast_server::Node;
use support::{Client, Cluster, OnStream, PATIENCE, acquire, eventually, open};
use tokio::time::Instant;
use tonic::Code;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_answers_with_the_same_truth() {
    let cluster = Cluster::start(3).await;
    let session = open(&mut cluster.client(0).await, 10_000).await;
    let mut tokens = Vec::new();
    for node in 0..3 {
        let mut client = cluster.client(node).await;
        let request = acquire(&session, node as u64 + 1, &format!("lock-{node}"), 0);
        let answer = client.acquire(request).await.unwrap().into_inner();
        let Some(acquire_response::Outcome::Granted(grant)) = answer.outcome else {
            panic!("not granted: {answer:?}");
        };
        tokens.push(grant.token);
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    for node in 0..3 {
        let request = StatusRequest { name: "lock-1".into(), request_id: 0 };
        let status = cluster.client(node).await.status(request).await.unwrap().into_inner();
        assert_eq!(status.holders[0].token, tokens[1]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_gets_the_progress_of_all_members_from_the_leader() {
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader(0).await, cluster.a_follower().await);
    let status = cluster
        .client(follower)
        .await
        .cluster_status(ClusterStatusRequest::default())
        .await
        .unwrap();
    let status = status.into_inner();
    assert_eq!(status.answered_by, leader as u64 + 1);
    assert_eq!(status.groups[0].replicas.len(), 3, "{status:?}");
    assert!(status.nodes.iter().all(|node| node.reachable), "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_works_through_a_follower_and_its_end_counts_as_a_disconnect() {
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader(0).await, cluster.a_follower().await);
    let mut stream = OnStream::open(&mut cluster.client(follower).await, 200).await;
    stream.send(vec![operation::Kind::Acquire(acquire("", 2, "wallet", 0))]).await;
    let frame = stream.next().await.unwrap();
    assert!(matches!(frame.answers[0].result, Some(answer::Result::Acquire(_))), "{frame:?}");

    let mut client = cluster.client(leader).await;
    let session = stream.session.clone();
    assert!(support::find_session(&mut client, &session).await.unwrap().connected);
    drop(stream);
    assert!(support::until_ended(&mut client, &session).await < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_call_keeps_many_sessions_alive_through_any_node_and_returns_which_have_ended() {
    const TTL_MS: u64 = 2_000;
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader(0).await, cluster.a_follower().await);
    let mut session_ids = Vec::new();
    let mut client = cluster.client(leader).await;
    let silent = open(&mut client, TTL_MS).await;
    for _ in 0..10 {
        session_ids.push(open(&mut client, TTL_MS).await);
    }
    let mut through_follower = cluster.client(follower).await;
    let mut times = Vec::new();
    // All the others outlive the one that no request names.
    while support::find_session(&mut client, &silent).await.is_some() {
        let request =
            KeepAliveManyRequest { session_ids: session_ids.clone(), ..Default::default() };
        let answer = through_follower.keep_alive_many(request).await.unwrap().into_inner();
        assert_eq!(answer.ttl_ms, vec![TTL_MS; 10]);
        times.push(answer.logical_time_ms);
    }
    assert!(times.is_sorted() && times[0] < times[times.len() - 1], "{times:?}");

    let session_ids = vec![session_ids[0].clone(), silent, session_ids[1].clone()];
    let answer = client
        .keep_alive_many(KeepAliveManyRequest { session_ids, ..Default::default() })
        .await
        .unwrap();
    assert_eq!(answer.into_inner().ttl_ms, [TTL_MS, 0, TTL_MS]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_stops_does_not_take_its_clients_sessions_along() {
    let mut cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader(0).await, cluster.a_follower().await);
    let mut stream = OnStream::open(&mut cluster.client(follower).await, 100).await;
    cluster.stop(follower).await;
    assert_eq!(stream.end().await.code(), Code::Unavailable);

    // The table's own time moves on by more than the linger time: the session would be gone if that
    // had begun.
    let mut client = cluster.client(leader).await;
    let before = support::find_session(&mut client, &stream.session).await.unwrap();
    eventually("the linger time is over", async || {
        let info = support::find_session(&mut client, &stream.session).await.unwrap();
        assert!(info.remaining_ms > 10_000, "{info:?}");
        (info.age_ms > before.age_ms + 500).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_hands_over_and_its_clients_resume_elsewhere() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader(0).await;
    let mut stream = OnStream::open(&mut cluster.client(leader).await, 1_000).await;
    stream.send(vec![operation::Kind::Acquire(acquire("", 2, "wallet", 0))]).await;
    stream.next().await.unwrap();

    cluster.stop(leader).await;
    let frame = stream.next().await.unwrap();
    assert!(
        frame
            .notices
            .iter()
            .any(|notice| matches!(notice.kind, Some(notice::Kind::LeaderMoved(_)))),
        "{frame:?}"
    );
    assert_eq!(stream.end().await.code(), Code::Unavailable);

    let other = (leader + 1) % 3;
    let resume = operation::Kind::Resume(ResumeSessionRequest {
        session_id: stream.session.clone(),
        request_id: 1,
        ..Default::default()
    });
    eventually("the session is resumed elsewhere", async || {
        let mut client = cluster.client(other).await;
        let mut again = OnStream::begin(&mut client, stream.session.clone(), resume.clone()).await;
        let frame = again.next().await.ok()?;
        matches!(frame.answers[0].result, Some(answer::Result::Resume(_))).then_some(())
    })
    .await;
    let mut client = cluster.client(other).await;
    let status = client
        .status(StatusRequest { name: "wallet".into(), request_id: 0 })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(status.holders[0].public_session_id, support::public_id(&stream.session));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_refuses_and_says_why() {
    let mut cluster = Cluster::start(3).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, 30_000).await;
    cluster.stop(1).await;
    cluster.stop(2).await;
    let started = Instant::now();
    let status = loop {
        let id = started.elapsed().as_millis() as u64 + 1;
        match client.acquire(acquire(&session, id, "wallet", 0)).await {
            // A leader learns within an election timeout that it is alone.
            Ok(_) => panic!("granted without a quorum"),
            Err(status) if status.message().contains("no leader") => break status,
            Err(_) => assert!(started.elapsed() < PATIENCE),
        }
    };
    assert_eq!(status.code(), Code::Unavailable);
    // Looking at the cluster needs no quorum.
    client.cluster_status(ClusterStatusRequest::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_catches_up_and_a_wiped_one_is_refused() {
    let mut cluster = Cluster::start(3).await;
    let follower = cluster.a_follower().await;
    let session = open(&mut cluster.client(0).await, 30_000).await;
    cluster.stop(follower).await;
    let leader = cluster.leader((follower + 1) % 3).await;
    let mut client = cluster.client(leader).await;
    client.acquire(acquire(&session, 1, "wallet", 0)).await.unwrap();

    let config = cluster.configs[follower].clone();
    cluster.nodes[follower] = Some(Node::start(config.clone()).await.unwrap());
    cluster.serving().await;
    until_no_lag(&mut client).await;

    cluster.stop(follower).await;
    std::fs::remove_dir_all(&config.data_dir).unwrap();
    let wiped = Node::start(config).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(2), wiped.serving()).await.is_err());
    wiped.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_for_long_is_sent_a_snapshot() {
    let mut cluster = Cluster::start_with(3, |config| config.snapshot_every_entries = 100).await;
    let follower = cluster.a_follower().await;
    let session = open(&mut cluster.client(0).await, 30_000).await;
    cluster.stop(follower).await;
    let mut client = cluster.client(cluster.leader((follower + 1) % 3).await).await;
    // One entry each, because each waits for the one before.
    for request_id in 1..500 {
        let mut request = acquire(&session, request_id, &format!("lock-{request_id}"), 0);
        request.acked_through = request_id - 1;
        client.acquire(request).await.unwrap();
    }

    let config = cluster.configs[follower].clone();
    cluster.nodes[follower] = Some(Node::start(config).await.unwrap());
    until_no_lag(&mut client).await;
    // The leader's log begins after what the node missed, so a snapshot is the only way.
    // A follower applies what it has a moment later.
    eventually("all have the same state", async || {
        let digests = digests(&cluster).await;
        digests.iter().all(|digest| *digest == digests[0]).then_some(())
    })
    .await;
}

/// Reads wait for the quorum's word, and may be answered after the `Close` of their frame.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_in_the_frame_of_a_close_are_answered_before_the_stream_ends() {
    const STATUSES: u64 = 60;
    let cluster = Cluster::start(3).await;
    for node in [cluster.leader(0).await, cluster.a_follower().await] {
        let mut client = cluster.client(node).await;
        for _ in 0..30 {
            let mut stream = OnStream::open(&mut client, 200).await;
            let status = |id| StatusRequest { name: "wallet".into(), request_id: id };
            let mut operations: Vec<_> =
                (2..STATUSES + 2).map(|id| operation::Kind::Status(status(id))).collect();
            // One that is refused.
            operations.push(operation::Kind::Status(StatusRequest {
                name: String::new(),
                request_id: STATUSES + 2,
            }));
            operations.push(operation::Kind::Close(CloseSessionRequest {
                request_id: STATUSES + 3,
                ..Default::default()
            }));
            stream.send(operations).await;
            let mut answered: Vec<u64> = Vec::new();
            while answered.len() as u64 != STATUSES + 2 {
                let frame = stream.next().await.unwrap();
                answered.extend(frame.answers.iter().map(|answer| answer.request_id));
            }
            answered.sort_unstable();
            assert!(answered.into_iter().eq(2..STATUSES + 4));
            assert_eq!(stream.end().await.code(), Code::Ok);
        }
    }
}

/// The state of every node, in its own words.
async fn digests(cluster: &Cluster) -> Vec<(u64, String)> {
    let mut digests = Vec::new();
    for node in 0..3 {
        let request = ClusterStatusRequest { with_digests: true, ..Default::default() };
        let status = cluster.client(node).await.cluster_status(request).await.unwrap().into_inner();
        assert_eq!(status.answered_by, node as u64 + 1);
        assert!(!status.groups[0].digest.is_empty());
        digests.push((status.groups[0].applied_index, status.groups[0].digest.clone()));
    }
    digests
}

async fn until_no_lag(client: &mut Client) {
    eventually("no node lags", async || {
        let status = client.cluster_status(ClusterStatusRequest::default()).await.unwrap();
        let replicas = &status.get_ref().groups[0].replicas;
        replicas.iter().all(|replica| replica.lag == 0).then_some(())
    })
    .await;
}
