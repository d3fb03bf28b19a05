//! Clients that vanish: killed, or cut off.

use std::process::Stdio;
use std::time::{Duration, Instant};

use holdfast_proto::v1::acquire_response::Outcome;
use holdfast_proto::v1::answer::Result;
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::{AcquireRequest, ClientFrame, OpenSessionRequest, Operation, ServerFrame};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::support::{Cluster, PlainClient, Proxy, data, eventually, holdfast};

const TTL: Duration = Duration::from_secs(4);

async fn is_held(cluster: &Cluster, name: &str) -> bool {
    !cluster.client().status(name).await.holders.is_empty()
}

async fn await_held(cluster: &Cluster, name: &str, held: bool) {
    eventually("the lock changes hands", Duration::from_secs(30), || async {
        (is_held(cluster, name).await == held).then_some(())
    })
    .await;
}

/// Starts `holdfast lock NAME -- sleep 60` and waits until it holds.
async fn lock_in_a_process(
    cluster: &Cluster,
    endpoints: &str,
    name: &str,
    ttl: &str,
) -> std::process::Child {
    let process = holdfast()
        .args(["lock", name, "--ttl", ttl, "--endpoints", endpoints, "--", "sleep", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    await_held(cluster, name, true).await;
    process
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_command_that_is_killed_with_9_frees_its_lock_within_about_a_second() {
    let cluster = Cluster::start(3).await;
    // Through the leader, and through a node that forwards.
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    // Several times, because the command begins while the lock is already held.
    for (round, id) in [leader, follower].repeat(4).into_iter().enumerate() {
        let name = format!("killed-{round}");
        let endpoints = cluster.client_address(id);
        let mut process = lock_in_a_process(&cluster, &endpoints, &name, "30s").await;
        let killed = Instant::now();
        process.kill().unwrap();
        process.wait().unwrap();
        await_held(&cluster, &name, false).await;
        let took = killed.elapsed();
        println!("freed {took:?} after kill -9");
        let history = data(&cluster, 0, &["history", &name]).await;
        assert_eq!(history["events"][1]["event"], "released", "{history}");
        assert!(took < Duration::from_millis(1_500), "freed after {took:?}");
    }
}

/// A session on a stream, with a linger far shorter than its TTL, that holds `name`.
async fn hold_on_a_stream(
    address: &str,
    name: &str,
) -> (mpsc::Sender<ClientFrame>, Streaming<ServerFrame>) {
    let (frames, outgoing) = mpsc::channel(8);
    let open = OpenSessionRequest {
        session_id: holdfast_proto::SessionId::random().unwrap().to_secret_text(),
        request_id: 1,
        ttl_ms: TTL.as_millis() as u64,
        linger_ms: Some(500),
        ..OpenSessionRequest::default()
    };
    let acquire = AcquireRequest { request_id: 2, name: name.into(), ..AcquireRequest::default() };
    let operations = [Kind::Open(open), Kind::Acquire(acquire)];
    let operations = operations.map(|kind| Operation { kind: Some(kind) }).to_vec();
    frames.send(ClientFrame { acked_through: 0, operations }).await.unwrap();
    let mut stub = PlainClient::new(vec![address.to_owned()]).stub();
    let mut answers = stub.session(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
    loop {
        let frame = answers.message().await.unwrap().unwrap();
        let granted = frame.answers.iter().any(|answer| {
            matches!(&answer.result, Some(Result::Acquire(acquire))
                if matches!(acquire.outcome, Some(Outcome::Granted(_))))
        });
        if granted {
            return (frames, answers);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_cut_off_keeps_its_lock_for_its_ttl() {
    let cluster = Cluster::start(3).await;
    // Through the leader, and through a node that forwards.
    for id in [cluster.leader().await, cluster.follower().await] {
        let name = format!("cut-{id}");
        let proxy = Proxy::to(cluster.client_address(id)).await;
        let sent = Instant::now();
        let _stream = hold_on_a_stream(proxy.address(), &name).await;
        proxy.cut();
        await_held(&cluster, &name, false).await;
        let took = sent.elapsed();
        println!("freed {took:?} after the last request");
        assert!(took >= TTL, "freed after {took:?}");
        assert!(took < TTL + Duration::from_secs(2), "freed after {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_closes_its_stream_keeps_its_lock_for_its_linger_time() {
    let cluster = Cluster::start(3).await;
    for id in [cluster.leader().await, cluster.follower().await] {
        let name = format!("closed-{id}");
        let stream = hold_on_a_stream(&cluster.client_address(id), &name).await;
        let closed = Instant::now();
        drop(stream);
        await_held(&cluster, &name, false).await;
        let took = closed.elapsed();
        println!("freed {took:?} after the stream was closed");
        assert!(took >= Duration::from_millis(450), "freed after {took:?}");
        assert!(took < Duration::from_millis(1_500), "freed after {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_command_that_was_frozen_past_its_ttl_ends_its_child_and_says_so() {
    let cluster = Cluster::start(3).await;
    let mut process = lock_in_a_process(&cluster, &cluster.endpoints(), "frozen", "4s").await;
    let pid = Pid::from_child(&process);
    let frozen = Instant::now();
    kill_process(pid, Signal::STOP).unwrap();
    await_held(&cluster, "frozen", false).await;
    // Its last heartbeat was answered at most a third of the TTL before.
    assert!(frozen.elapsed() >= TTL.mul_f64(0.6), "freed after {:?}", frozen.elapsed());
    kill_process(pid, Signal::CONT).unwrap();
    let status = tokio::task::spawn_blocking(move || process.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(79));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_command_outlives_kill_9_of_the_leader_and_of_the_node_that_forwards_it() {
    for through_the_leader in [true, false] {
        let mut cluster = Cluster::start(3).await;
        let id = if through_the_leader { cluster.leader().await } else { cluster.follower().await };
        // The first endpoint is the one that is used as long as it lives.
        let others = cluster.ids().into_iter().filter(|other| *other != id);
        let endpoints: Vec<String> =
            std::iter::once(id).chain(others).map(|id| cluster.client_address(id)).collect();
        let mut process = holdfast()
            .args(["lock", "work", "--endpoints", &endpoints.join(","), "--", "sleep", "5"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        await_held(&cluster, "work", true).await;
        let token = cluster.client().status("work").await.holders[0].token;
        cluster.kill(id);
        cluster.leader().await;
        let held_for = cluster.client().status("work").await.holders[0].held_for_ms;
        // The table's own time moves on by more than the linger time: a session that was given up
        // would be gone.
        eventually("time has passed", Duration::from_secs(20), || async {
            let holders = cluster.client().status("work").await.holders;
            assert_eq!(holders.first().map(|holder| holder.token), Some(token));
            (holders[0].held_for_ms > held_for + 1_500).then_some(())
        })
        .await;
        let status = tokio::task::spawn_blocking(move || process.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0), "the command was not let finish");
        await_held(&cluster, "work", false).await;
    }
}
