//! The efficiency tier against a real cluster: what it promises, and what becomes of it when its leader goes.

use std::time::{Duration, Instant};

use holdfast_client::unary::TokenState;
use holdfast_client::{
    AcquireError, Client, Fence, Guarantee, Guard, LockRequest, LossReason, Tier,
};
use holdfast_proto::v1::acquire_response::Outcome;
use holdfast_proto::v1::{AcquireRequest, EfficiencyStatus};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use crate::support::{Cluster, ClusterOptions, PlainSession, data, eventually, run, text, words};

const LONG: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(20);
/// Ten ticks of 50 ms, as the configuration has it by default.
const ELECTION_TIMEOUT: Duration = Duration::from_millis(500);

fn fast(client: &Client, name: &str) -> LockRequest {
    client.lock(name).tier(Tier::Efficiency)
}

async fn stand_in_line(request: LockRequest) -> JoinHandle<Result<Guard, AcquireError>> {
    let (queued, when_queued) = oneshot::channel();
    let asking = tokio::spawn(request.wait(LONG).on_queued(|_| queued.send(()).unwrap()).acquire());
    when_queued.await.unwrap();
    asking
}

async fn status(cluster: &Cluster, name: &str) -> EfficiencyStatus {
    cluster.client().status(name).await.efficiency.unwrap_or_default()
}

async fn lost(guard: &Guard) -> LossReason {
    tokio::time::timeout(PATIENCE, guard.lost()).await.expect("the holder learns that it is lost")
}

#[tokio::test(flavor = "multi_thread")]
async fn it_grants_in_order_under_rising_best_effort_tokens_and_is_another_lock_than_the_replicated_one()
 {
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let alice = cluster.library().await;
    // By way of a node that forwards.
    let builder = Client::builder().without_discovery();
    let bob = builder.connect(&cluster.client_address(follower)).await.unwrap();
    let first = fast(&alice, "report").acquire().await.unwrap();
    assert_eq!(first.guarantee(), Some(Guarantee::BestEffort));
    let fence: Fence = first.fence().unwrap().parse().unwrap();
    assert!(fence.is_for("report") && fence.guarantee() == Guarantee::BestEffort);
    let term = cluster.view_of(leader).await.unwrap().term;
    assert_eq!(first.token().unwrap() >> 40, term);

    // The replicated lock of this name is free, and its tokens know nothing of all this.
    let replicated = alice.lock("report").acquire().await.unwrap();
    assert_eq!(replicated.guarantee(), Some(Guarantee::Linearizable));
    assert_eq!(replicated.token(), Ok(1));
    replicated.release().await.unwrap();

    assert_eq!(fast(&bob, "report").acquire().await.unwrap_err(), AcquireError::Busy);
    let second = stand_in_line(fast(&bob, "report")).await;
    let third = stand_in_line(fast(&alice, "report")).await;
    let seen = status(&cluster, "report").await;
    assert_eq!((seen.holder_count, seen.waiter_count), (1, 2));
    let shown = text(&run(&cluster, &["status", "report"]).await.stdout);
    assert!(shown.starts_with("report is free") && shown.contains("efficiency tier"), "{shown}");

    let fence = first.fence().unwrap();
    assert_eq!(alice.check_token("report", &fence).await, Ok(TokenState::Current));
    let one = first.token().unwrap();
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.token().unwrap() > one);
    let current = second.token().unwrap();
    let superseded = alice.check_token("report", &fence).await;
    assert_eq!(superseded, Ok(TokenState::Superseded { current }));
    second.release().await.unwrap();
    assert!(third.await.unwrap().unwrap().token().unwrap() > current);
    // Nothing of it is in the log.
    assert_eq!(cluster.view_of(leader).await.unwrap().last_token, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_renewed_or_whose_session_ends_is_free_again_and_its_holder_is_told() {
    let cluster = Cluster::start(1).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    // A new leader grants nothing for as long as one before it may think that it leads, which is as long as this TTL.
    fast(&alice, "first").acquire().await.unwrap().release().await.unwrap();
    let ttl = Duration::from_millis(400);
    let held = fast(&alice, "a").ttl(ttl).acquire().await.unwrap();
    let next = stand_in_line(fast(&bob, "a")).await;
    held.renew(None).await.unwrap();
    let asked = Instant::now();
    let next = next.await.unwrap().unwrap();
    assert!(asked.elapsed() < PATIENCE);
    assert!(matches!(lost(&held).await, LossReason::HoldTtl | LossReason::OwnTimeOver));
    assert!(held.token().is_err() && next.token().is_ok());

    // Every way by which the session ends.
    let waits = stand_in_line(fast(&bob, "b"));
    let b = fast(&alice, "b").acquire().await.unwrap();
    let waits = waits.await;
    let sessions = data(&cluster, 0, &["status", "b"]).await;
    let session = sessions["efficiency"]["holders"][0]["session"].as_str().unwrap().to_owned();
    data(&cluster, 0, &["kill-session", &session, "--reason", "test"]).await;
    assert_eq!(lost(&b).await, LossReason::SessionKilled);
    let b = waits.await.unwrap().unwrap();
    bob.close().await.unwrap();
    assert_eq!(lost(&b).await, LossReason::SessionClosed);
    let free = async || (status(&cluster, "b").await.holder_count == 0).then_some(());
    eventually("the lock of a closed session is free", PATIENCE, free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_leader_dies_holders_learn_it_waiters_stand_in_line_again_and_tokens_rise() {
    let mut cluster = Cluster::start(3).await;
    let (alice, bob) = (cluster.library().await, cluster.library().await);
    let replicated = alice.lock("report").acquire().await.unwrap();
    let (safe_token, safe_fence) = (replicated.token().unwrap(), replicated.fence().unwrap());
    let held = fast(&alice, "report").acquire().await.unwrap();
    let (token, fence) = (held.token().unwrap(), held.fence().unwrap());
    let waits = stand_in_line(fast(&bob, "report")).await;

    cluster.kill(cluster.leader().await);
    assert_eq!(lost(&held).await, LossReason::LeaderUnreachable);
    assert!(held.token().is_err());
    let next = tokio::time::timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    assert!(next.token().unwrap() > token, "{:?} after {token}", next.token());
    let current = next.token().unwrap();
    let superseded = bob.check_token("report", &fence).await;
    assert_eq!(superseded, Ok(TokenState::Superseded { current }));
    // The other tier has lost nothing.
    assert_eq!(replicated.token(), Ok(safe_token));
    assert_eq!(bob.check_token("report", &safe_fence).await, Ok(TokenState::Current));
    // What is gone is given back without harm to the one who holds it now.
    held.release().await.unwrap();
    assert_eq!(next.token(), Ok(current));
}

/// One acquire, asked of this very node.
async fn ask_once(cluster: &Cluster, node: u64, session: &PlainSession) -> Result<Outcome, Status> {
    let request = AcquireRequest {
        session_id: session.id.clone(),
        request_id: session.next_request(),
        name: format!("isolated-{}", session.next_request()),
        tier: holdfast_proto::v1::Tier::Efficiency.into(),
        ..Default::default()
    };
    Ok(cluster.client_of(node).stub().acquire(request).await?.into_inner().outcome.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_has_lost_its_quorum_stops_granting_within_the_election_timeout() {
    let settings = "election_ticks = 10".to_owned();
    let cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    let leader = cluster.leader().await;
    let session = cluster.client().open(LONG).await;
    let before = ask_once(&cluster, leader, &session).await;
    assert!(matches!(before, Ok(Outcome::Granted(_))), "{before:?}");

    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let isolated = Instant::now();
    others.iter().for_each(|id| cluster.freeze(*id));
    // Each answer tells of a moment between its question and itself.
    let mut last_grant = isolated;
    let refused = loop {
        let asked = Instant::now();
        match ask_once(&cluster, leader, &session).await {
            Ok(Outcome::Granted(_)) => last_grant = asked,
            Ok(other) => panic!("{other:?}"),
            Err(status) => break status,
        }
        assert!(isolated.elapsed() < PATIENCE, "it goes on granting");
    };
    let granted_for = last_grant.duration_since(isolated);
    println!("granted for {granted_for:?} without a quorum, then: {refused}");
    assert!(granted_for < ELECTION_TIMEOUT, "{granted_for:?}");
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    // And nothing more, however often it is asked.
    assert!(ask_once(&cluster, leader, &session).await.is_err());

    others.iter().for_each(|id| cluster.thaw(*id));
    eventually("it is served again", PATIENCE, || async {
        let leader = cluster.leader().await;
        let answer = ask_once(&cluster, leader, &session).await;
        matches!(answer, Ok(Outcome::Granted(_))).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_use_it_through_single_calls_at_any_node() {
    let cluster = Cluster::start(3).await;
    let tier = ["--tier", "efficiency"];
    let held = data(&cluster, 0, &["acquire", "thumbs", "--ttl", "60s", tier[0], tier[1]]).await;
    assert_eq!(held["guarantee"], "best_effort");
    let (session, token) = (held["session"].as_str().unwrap(), held["token"].as_str().unwrap());
    let fence = held["fence"].as_str().unwrap();
    assert!(fence.starts_with("hf1.B."), "{fence}");
    let said = words(&cluster, 75, &["acquire", "thumbs", tier[0], tier[1]]).await;
    assert!(said.contains("is held by") && said.contains("holdfast status thumbs"), "{said}");
    let lock = ["lock", "thumbs", "--wait", "0s", tier[0], tier[1], "--", "true"];
    words(&cluster, 75, &lock).await;
    words(&cluster, 0, &["lock", "thumbs", "--wait", "0s", "--", "true"]).await;

    let checked = async |code, token: &str, more: &[&str]| {
        data(&cluster, code, &[&["check-token", "thumbs", token], more].concat()).await["state"]
            .take()
    };
    assert_eq!(checked(0, fence, &[]).await, "current");
    assert_eq!(checked(0, token, &tier).await, "current");
    // As a number it is nothing in the other tier, where the name had one token and is free.
    assert_eq!(checked(79, token, &[]).await, "never_given");
    assert_eq!(checked(79, "1", &[]).await, "free");
    words(&cluster, 64, &["check-token", "other", fence]).await;
    words(&cluster, 64, &["check-token", "thumbs", "0"]).await;

    let of = ["--session", session, "--token", token];
    let renewed = data(&cluster, 0, &[&["renew", "thumbs"][..], &of, &tier].concat()).await;
    assert!(renewed["remaining_ms"].as_u64().unwrap() > 50_000, "{renewed}");
    // The other tier knows of no such hold.
    words(&cluster, 77, &[&["release", "thumbs"][..], &of].concat()).await;
    let released = data(&cluster, 0, &[&["release", "thumbs"][..], &of, &tier].concat()).await;
    assert_eq!(released["outcome"], "released");
    assert_eq!(checked(79, fence, &[]).await, "free");
    words(&cluster, 0, &lock).await;
}
