//! What a cluster lives through, and what it still knows afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_proto::v1::acquire_response::Outcome;
use holdfast_proto::v1::{AcquireRequest, ReleaseRequest};
use holdfast_proto::v1::{
    CancelRequest, CloseSessionRequest, KeepAliveRequest, ListRequest, ListSessionsRequest,
    OpenSessionRequest, RenewRequest, StatusRequest,
};
use tonic::Code;

use crate::support::{Cluster, ClusterOptions, Load, LoadReport, eventually, hold, wait_in_line};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Runs under load for a while. Waiting is the point here, not waiting for something.
async fn under_load(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Every lock that was acknowledged and kept is held under the token that was acknowledged, and the
/// tokens of one lock rose with every grant.
async fn check(cluster: &Cluster, report: &LoadReport) {
    assert!(report.operations > 50, "hardly any load: {}", report.operations);
    let client = cluster.client();
    for (name, token) in &report.kept {
        let holders = client.status(name).await.holders;
        let held: Vec<u64> = holders.iter().map(|holder| holder.token).collect();
        assert_eq!(held, [*token], "{name} was acknowledged under {token}");
    }
    let rising = report.shared_tokens.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(rising, "tokens went back: {:?}", report.shared_tokens);
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_the_leader_loses_no_acknowledged_grant_and_tokens_only_rise() {
    let mut cluster = Cluster::start_alone(3).await;
    let load = Load::start(&cluster.client()).await;
    under_load(secs(1)).await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    under_load(secs(3)).await;
    let report = load.stop().await;
    check(&cluster, &report).await;
    cluster.launch(leader);
    cluster.converged().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_waits_out_an_election_timeout_for_a_leader_whose_process_was_killed() {
    // An election timeout is at least 4 s.
    let settings = "tick_ms = 50\nelection_ticks = 80".to_owned();
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let killed = Instant::now();
    assert_ne!(cluster.leader().await, leader);
    let silence = killed.elapsed();
    assert!(silence < secs(3), "no node led for {silence:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_serve_with_two_dead() {
    let mut cluster = Cluster::start(5).await;
    let load = Load::start(&cluster.client()).await;
    for _ in 0..2 {
        under_load(secs(1)).await;
        let leader = cluster.leader().await;
        cluster.kill(leader);
    }
    under_load(secs(2)).await;
    let report = load.stop().await;
    check(&cluster, &report).await;
    cluster.converged().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_majority_dead_every_call_ends_unavailable_in_bounded_time() {
    let mut cluster = Cluster::start(3).await;
    let session = cluster.client().open(secs(60)).await;
    let grant = hold(&session, "kept").await;
    let survivor = cluster.leader().await;
    for id in cluster.ids().into_iter().filter(|id| *id != survivor) {
        cluster.kill(id);
    }
    let stub = cluster.client_of(survivor).stub();
    let id = session.id.clone();
    // The first call finds a leader that does not yet know that it is alone.
    macro_rules! is_unavailable {
        ($method:ident, $request:expr) => {{
            let started = Instant::now();
            let status = stub.clone().$method($request).await.expect_err(stringify!($method));
            assert_eq!(status.code(), Code::Unavailable, "{}: {status}", stringify!($method));
            let took = started.elapsed();
            assert!(took < secs(6), "{} took {took:?}", stringify!($method));
            assert!(status.metadata().get("holdfast-reason").is_some(), "{status:?}");
        }};
    }
    let (name, session_id) = ("kept".to_owned(), id.clone());
    is_unavailable!(
        acquire,
        AcquireRequest {
            session_id: id.clone(),
            request_id: 100,
            name: "other".into(),
            ..AcquireRequest::default()
        }
    );
    is_unavailable!(
        release,
        ReleaseRequest {
            session_id: id.clone(),
            request_id: 101,
            name: name.clone(),
            token: grant.token,
            ..ReleaseRequest::default()
        }
    );
    is_unavailable!(
        renew,
        RenewRequest {
            session_id: id.clone(),
            request_id: 102,
            name: name.clone(),
            token: grant.token,
            ..RenewRequest::default()
        }
    );
    is_unavailable!(
        cancel,
        CancelRequest {
            session_id: id.clone(),
            request_id: 103,
            target: 1,
            ..CancelRequest::default()
        }
    );
    is_unavailable!(
        keep_alive,
        KeepAliveRequest { session_id: id.clone(), ..KeepAliveRequest::default() }
    );
    is_unavailable!(
        open_session,
        OpenSessionRequest {
            session_id: "ab".repeat(16),
            ttl_ms: 1_000,
            ..OpenSessionRequest::default()
        }
    );
    is_unavailable!(
        close_session,
        CloseSessionRequest { session_id, request_id: 104, ..Default::default() }
    );
    is_unavailable!(status, StatusRequest { name, request_id: 0 });
    is_unavailable!(list, ListRequest::default());
    is_unavailable!(list_sessions, ListSessionsRequest::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_past_compaction_comes_back_by_snapshot() {
    let settings = "snapshot_every_entries = 200\nsegment_bytes = 1048576".to_owned();
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    let away = cluster.follower().await;
    cluster.kill(away);
    let load = Load::start(&cluster.client()).await;
    let leader = cluster.leader().await;
    // Enough that the entries the node needs are gone from every log.
    eventually("the log has moved on", secs(60), || async {
        let view = cluster.view_of(leader).await?;
        (view.applied_index > 1_500).then_some(())
    })
    .await;
    let report = load.stop().await;
    cluster.launch(away);
    cluster.converged().await;
    check(&cluster, &report).await;
    let log = cluster.log_of(away);
    assert!(log.contains("received a snapshot"), "it came back some other way:\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_killed_at_once_restart_with_every_lock_queue_and_session_as_acknowledged() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client();
    let holder = client.open(secs(600)).await;
    let tokens = [
        hold(&holder, "first").await.token,
        hold(&holder, "second").await.token,
        hold(&holder, "queued").await.token,
    ];
    let mut waiters = Vec::new();
    for place in 1..=3 {
        let session = Arc::new(client.open(secs(600)).await);
        waiters.push((session.id.clone(), wait_in_line(session, "queued", secs(300))));
        eventually("the waiter stands in line", secs(5), || async {
            (client.status("queued").await.waiter_count == place).then_some(())
        })
        .await;
    }
    let before = client.status("queued").await;
    let sessions_before: Vec<_> =
        client.sessions().await.into_iter().map(|session| session.public_id).collect();

    for id in cluster.ids() {
        cluster.kill(id);
    }
    for id in cluster.ids() {
        cluster.launch(id);
    }
    cluster.leader().await;

    let after = client.status("queued").await;
    let line = |status: &holdfast_proto::v1::StatusResponse| {
        status
            .waiters
            .iter()
            .map(|waiter| (waiter.position, waiter.public_session_id.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(line(&after), line(&before));
    for (name, token) in ["first", "second", "queued"].into_iter().zip(tokens) {
        assert_eq!(client.status(name).await.holders[0].token, token);
    }
    let sessions_after: Vec<_> =
        client.sessions().await.into_iter().map(|session| session.public_id).collect();
    assert_eq!(sessions_after, sessions_before);

    // The waiters' calls broke; their retries, under the same request ids, find their old places.
    holder.release("queued", tokens[2]).await.unwrap();
    let (_, first) = waiters.remove(0);
    let answer = first.await.unwrap().unwrap();
    match answer.outcome {
        Some(Outcome::Granted(grant)) => assert!(grant.token > tokens[2]),
        other => panic!("the first in line was not granted: {other:?}"),
    }
    for (_, waiter) in &waiters {
        assert!(!waiter.is_finished(), "a release wakes one");
        waiter.abort();
    }
    cluster.converged().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_rolling_restart_under_load_every_retried_operation_ends_within_2_s() {
    let mut cluster = Cluster::start_alone(3).await;
    let load = Load::start(&cluster.client()).await;
    for id in cluster.ids() {
        under_load(secs(1)).await;
        cluster.terminate(id).await;
        cluster.launch(id);
        cluster.leader().await;
        eventually("the node is back", secs(10), || async {
            cluster.view_of(id).await.filter(|view| view.leader != 0).map(drop)
        })
        .await;
    }
    under_load(secs(1)).await;
    let report = load.stop().await;
    println!("{} operations, the slowest took {:?}", report.operations, report.slowest);
    assert!(report.slowest < secs(2), "the slowest took {:?}", report.slowest);
    check(&cluster, &report).await;
    cluster.converged().await;
}
