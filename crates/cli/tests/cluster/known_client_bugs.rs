//! What other lock clients got wrong, each against a real cluster: locks that are lost in silence, grants that
//! are over when they arrive, waiters whom no client waits for any more, locks that are one's own by accident.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use holdfast_client::{AcquireError, Client, LockRequest, LossReason, ReleaseOutcome};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::support::{Cluster, Proxy, data, eventually, hold};

const LONG: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(3);

/// A client whose only way to the cluster is this proxy.
async fn through(proxy: &Proxy, ttl: Duration) -> Client {
    Client::builder().ttl(ttl).without_discovery().connect(proxy.address()).await.unwrap()
}

async fn is_free(cluster: &Cluster, name: &str) {
    eventually("no client holds or waits", LONG, || async {
        let status = cluster.client().status(name).await;
        (status.holder_count == 0 && status.waiter_count == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_cut_off_knows_of_its_loss_before_anybody_else_holds() {
    let cluster = Cluster::start(3).await;
    let proxy = Proxy::to(cluster.client_address(1)).await;
    let guard = through(&proxy, TTL).await.lock("a").acquire().await.unwrap();
    let token = guard.token().unwrap();
    let next = tokio::spawn(cluster.library().await.lock("a").wait(LONG).acquire());
    proxy.cut();
    let work = guard.run_while_held(std::future::pending::<()>());
    // First at risk, while there is time, then lost: in silence, and yet told.
    timeout(LONG, guard.at_risk()).await.unwrap();
    assert_eq!(guard.token(), Ok(token), "there is time left");
    assert!(!guard.is_valid_for(TTL / 2));
    assert_eq!(timeout(LONG, work).await.unwrap().unwrap_err().reason, LossReason::Expired);
    assert!(!next.is_finished(), "told after another was granted the lock");
    assert!(guard.token().is_err() && guard.fence().is_err());

    let newer = next.await.unwrap().unwrap();
    assert!(newer.token().unwrap() > token);
    // Back again, it stays lost, and its release is not taken for the newer hold.
    proxy.heal();
    let outcome = guard.release().await.unwrap();
    assert!(outcome != ReleaseOutcome::Released, "{outcome:?}");
    assert_eq!(cluster.client().status("a").await.holders[0].token, newer.token().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_loses_a_lock_while_no_notice_can_come_learns_it_with_the_next_stream() {
    break_while_no_notice_can_come(|request| request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_whose_hold_is_broken_while_no_notice_can_come_learns_it_with_the_next_stream() {
    break_while_no_notice_can_come(LockRequest::shared).await;
}

async fn break_while_no_notice_can_come(mode: impl Fn(LockRequest) -> LockRequest) {
    let cluster = Cluster::start(3).await;
    let proxy = Proxy::to(cluster.client_address(1)).await;
    let endpoints = format!("{},{}", proxy.address(), cluster.client_address(2));
    let client = Client::builder().ttl(LONG).without_discovery().connect(&endpoints).await.unwrap();
    let broken = mode(client.lock("broken")).acquire().await.unwrap();
    let kept = mode(client.lock("kept")).acquire().await.unwrap();
    proxy.cut();
    data(&cluster, 0, &["break", "broken", "--reason", "a test"]).await;
    assert!(broken.token().is_ok(), "it cannot know");
    // What was on its way never arrives, and there is another way.
    proxy.break_connections();
    assert_eq!(timeout(LONG, broken.lost()).await.unwrap(), LossReason::Ended);
    assert!(broken.token().is_err());
    assert!(kept.token().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_loses_a_lock_to_an_operator_or_a_time_limit_is_told_why() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let broken = client.lock("broken").acquire().await.unwrap();
    data(&cluster, 0, &["break", "broken", "--reason", "a test"]).await;
    assert_eq!(timeout(LONG, broken.lost()).await.unwrap(), LossReason::Broken);
    let short = client.lock("short").max_hold(Duration::from_millis(300)).acquire().await.unwrap();
    let reason = timeout(LONG, short.lost()).await.unwrap();
    assert!(matches!(reason, LossReason::MaxHold | LossReason::OwnTimeOver), "{reason:?}");

    // The end of a session is the end of all its locks; the next is another session's.
    let guards = [
        client.lock("one").acquire().await.unwrap(),
        client.lock("two").shared().acquire().await.unwrap(),
    ];
    let session = cluster.client().status("one").await.holders[0].public_session_id.clone();
    data(&cluster, 0, &["kill-session", &session, "--reason", "a test"]).await;
    for guard in &guards {
        assert_eq!(timeout(LONG, guard.lost()).await.unwrap(), LossReason::SessionKilled);
        assert!(guard.token().is_err());
    }
    let again = client.lock("one").wait(LONG).acquire().await.unwrap();
    drop(guards);
    // The drop of the old guard must not free the new hold: this travels after it.
    client.lock("after").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(cluster.client().status("one").await.holders[0].token, again.token().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_over_when_it_arrives_is_no_grant() {
    let cluster = Cluster::start(3).await;
    let proxy = Proxy::to(cluster.client_address(1)).await;
    let holder = cluster.client().open(LONG).await;
    let token = hold(&holder, "a").await.token;
    let (queued, when_queued) = oneshot::channel();
    let request = through(&proxy, LONG)
        .await
        .lock("a")
        .ttl(Duration::from_millis(800))
        .wait(LONG)
        .on_queued(|_| queued.send(()).unwrap());
    let asking = tokio::spawn(request.acquire());
    when_queued.await.unwrap();
    proxy.cut();
    assert_eq!(cluster.client().status("a").await.waiter_count, 1);
    holder.release("a", token).await.unwrap();
    eventually("it is granted", LONG, || async {
        (cluster.client().status("a").await.holder_count == 1).then_some(())
    })
    .await;
    // The grant is on its way, and its time passes.
    is_free(&cluster, "a").await;
    proxy.heal();
    let outcome = timeout(LONG, asking).await.unwrap().unwrap();
    assert!(matches!(outcome, Err(AcquireError::Lost(_))), "{outcome:?}");
}

/// Polls the future so many times and then drops it. True if it was done before.
async fn polled<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(done) = polled {
            return Some(done);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// At every poll at first, later at every tenth part more.
fn poll_counts() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(0), |polls: &usize| Some(polls + 1 + polls / 10))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_is_dropped_at_any_of_its_polls_leaves_no_waiter_and_no_hold() {
    let cluster = Cluster::start(3).await;
    let (client, other) = (cluster.library().await, cluster.library().await);
    // The lock is free, so that the grant is dropped on its way too.
    let mut rounds = 0;
    for polls in poll_counts() {
        rounds += 1;
        let done = polled(client.lock("free").wait(LONG).acquire(), polls).await;
        let is_done = done.is_some();
        drop(done);
        is_free(&cluster, "free").await;
        if is_done {
            break;
        }
    }
    println!("{rounds} rounds until it was done");
    assert!(rounds > 2, "it was never dropped under way");

    // A client holds it, and lets go about when the other gives up.
    for polls in poll_counts().take(60) {
        // What the other gave up may still be on its way, and is granted and given back when it arrives.
        let held = other.lock("held").wait(LONG).acquire().await.unwrap();
        let asking = client.lock("held").wait(LONG).acquire();
        let (done, released) = tokio::join!(polled(asking, polls), held.release());
        released.unwrap();
        drop(done);
        is_free(&cluster, "held").await;
    }

    // It stands in line for certain, in one queue or in two.
    for round in 0..20 {
        let held = other.lock_all(["held", "held2"]).acquire().await.unwrap();
        let (queued, when_queued) = oneshot::channel();
        let queued = move |_| queued.send(()).unwrap();
        let give_up = async {
            when_queued.await.unwrap();
        };
        let one = client.lock("held").wait(LONG);
        let both = client.lock_all(["held", "held2"]).wait(LONG);
        let asking = async {
            match round % 2 {
                0 => drop(one.on_queued(queued).acquire().await),
                _ => drop(both.on_queued(queued).acquire().await),
            }
        };
        tokio::select! {
            () = asking => panic!("it is held"),
            () = give_up => {}
        }
        eventually("no client waits", LONG, || async {
            (cluster.client().status("held").await.waiter_count == 0).then_some(())
        })
        .await;
        held.release().await.unwrap();
    }
    is_free(&cluster, "held2").await;

    // Campaigns are no exception.
    for polls in poll_counts().take(30) {
        drop(polled(client.election("boss").campaign("me"), polls).await);
        is_free(&cluster, "boss").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_ones_own_by_accident() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let guard = client.lock("a").acquire().await.unwrap();
    // The same task of the same session is a stranger like any other.
    assert_eq!(client.lock("a").acquire().await.unwrap_err(), AcquireError::Busy);
    let waited = client.lock("a").wait(LONG).acquire().await.unwrap_err();
    assert!(matches!(waited, AcquireError::Deadlock(_)), "{waited:?}");
    // So is the same process with another session, as after a restart.
    let restarted = cluster.library().await;
    assert_eq!(restarted.lock("a").reentrant().acquire().await.unwrap_err(), AcquireError::Busy);
    guard.token().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_renewal_outlives_a_release() {
    let cluster = Cluster::start(3).await;
    let client = Client::builder().ttl(TTL).connect(&cluster.endpoints()).await.unwrap();
    for polls in 0..20 {
        let guard = client.lock("a").ttl(LONG).acquire().await.unwrap();
        // A renewal that is under way while the lock is given back.
        drop(polled(guard.renew(Some(LONG)), polls).await);
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
        is_free(&cluster, "a").await;
    }
    // The heartbeats go on for the rest, and bring nothing back.
    let kept = client.lock("kept").acquire().await.unwrap();
    let session = cluster.client().status("kept").await.holders[0].public_session_id.clone();
    let age = || async {
        let sessions = cluster.client().sessions().await;
        sessions.iter().find(|info| info.public_id == session).unwrap().age_ms
    };
    let begun = age().await;
    eventually("the session lives on for two TTLs", LONG, || async {
        (age().await > begun + 2 * TTL.as_millis() as u64).then_some(())
    })
    .await;
    kept.token().unwrap();
    is_free(&cluster, "a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_locks_cost_the_heartbeats_of_one() {
    const LOCKS: usize = 10_000;
    let cluster = Cluster::start_alone(3).await;
    let client = Client::builder().ttl(TTL).connect(&cluster.endpoints()).await.unwrap();
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..LOCKS {
        asking.spawn(client.lock(format!("lock-{number}")).acquire());
    }
    let mut guards = Vec::new();
    while let Some(guard) = asking.join_next().await {
        guards.push(guard.unwrap().unwrap());
    }
    let leader = cluster.leader().await;
    let view = || async { cluster.view_of(leader).await.unwrap() };
    let before = view().await;
    let begun = Instant::now();
    // Four TTLs of the cluster's own time.
    let after = eventually("time passes", LONG, || async {
        let now = view().await;
        (now.logical_time_ms > before.logical_time_ms + 4 * TTL.as_millis() as u64).then_some(now)
    })
    .await;
    let entries = after.applied_index - before.applied_index;
    // The client sends heartbeats by its own clock, which on a busy machine runs faster than the cluster's time.
    let thirds = (begun.elapsed().as_millis() / (TTL.as_millis() / 3)) as u64;
    println!("{entries} entries of the log in {thirds} thirds of a TTL, with {LOCKS} locks");
    assert!(entries <= thirds + 2, "{entries} entries in {thirds} thirds of a TTL");
    assert!(entries >= thirds / 2, "no heartbeats were counted: {entries} in {thirds} thirds");
    for guard in &guards {
        guard.token().unwrap();
    }
    assert_eq!(after.locks, LOCKS as u64);
}
