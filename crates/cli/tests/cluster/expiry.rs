//! A session that falls silent loses its locks: never early, and within the published bound.

use std::time::{Duration, Instant};

use crate::support::{Cluster, PlainSession, eventually, hold};

const TTL: Duration = Duration::from_secs(4);
/// The defaults of a node.
const GRACE: Duration = Duration::from_millis(1_000);
const TICK: Duration = Duration::from_millis(50);
/// What the test itself may take to notice: a poll and its round trip on a busy machine.
const NOTICE: Duration = Duration::from_millis(400);

fn bound(leaderless: Duration) -> Duration {
    TTL.mul_f64(1.01) + leaderless + GRACE + 2 * TICK + NOTICE
}

/// When the lock was seen to be free.
async fn freed_at(cluster: &Cluster, name: &str) -> Instant {
    eventually("the lock is free", Duration::from_secs(60), || async {
        cluster.client().status(name).await.holders.is_empty().then(Instant::now)
    })
    .await
}

struct Silent {
    /// Between these two moments the last answered request was sent and answered.
    sent: Instant,
    answered: Instant,
    _session: PlainSession,
}

async fn falls_silent(cluster: &Cluster, name: &str) -> Silent {
    let session = cluster.client().open(TTL).await;
    let sent = Instant::now();
    hold(&session, name).await;
    Silent { sent, answered: Instant::now(), _session: session }
}

impl Silent {
    async fn check(&self, cluster: &Cluster, name: &str, leaderless: Duration) {
        let freed = freed_at(cluster, name).await;
        let (least, most) = (freed - self.sent, freed - self.answered);
        println!("{name}: freed after {least:?}, leaderless for {leaderless:?}");
        assert!(least >= TTL, "freed early, after {least:?}");
        assert!(most <= bound(leaderless), "freed late, after {most:?} of {:?}", bound(leaderless));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_session_loses_its_lock_after_its_ttl_and_within_the_bound() {
    let cluster = Cluster::start_alone(3).await;
    falls_silent(&cluster, "silent").await.check(&cluster, "silent", Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leader_change_neither_ends_it_early_nor_gives_it_a_new_ttl() {
    let mut cluster = Cluster::start_alone(3).await;
    let silent = falls_silent(&cluster, "once").await;
    let killed = Instant::now();
    let leader = cluster.leader().await;
    cluster.kill(leader);
    cluster.leader().await;
    silent.check(&cluster, "once", killed.elapsed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_leader_changes_give_one_grace_and_no_new_ttl() {
    let mut cluster = Cluster::start_alone(3).await;
    let silent = falls_silent(&cluster, "thrice").await;
    let mut leaderless = Duration::ZERO;
    for _ in 0..3 {
        let leader = cluster.leader().await;
        let term = cluster.view_of(leader).await.unwrap().term;
        let killed = Instant::now();
        cluster.kill(leader);
        cluster.launch(leader);
        eventually("a later term has a leader", Duration::from_secs(15), || async {
            let leader = cluster.leader().await;
            (cluster.view_of(leader).await?.term > term).then_some(())
        })
        .await;
        leaderless += killed.elapsed();
    }
    silent.check(&cluster, "thrice", leaderless).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_frozen_ends_no_session_when_it_wakes() {
    let cluster = Cluster::start_alone(3).await;
    let frozen = cluster.leader().await;
    let others: Vec<_> = cluster.ids().into_iter().filter(|id| *id != frozen).collect();
    let session = cluster.client_of(others[0]).open(TTL).await;
    let grant = hold(&session, "kept").await;

    cluster.freeze(frozen);
    let started = Instant::now();
    while started.elapsed() < 2 * TTL {
        session.keep_alive().await.unwrap();
        tokio::time::sleep(TTL / 4).await;
    }
    cluster.thaw(frozen);
    // It hears of its successor, and has nothing to say about any client's session.
    eventually("the frozen node follows", Duration::from_secs(10), || async {
        let view = cluster.view_of(frozen).await?;
        (view.leader != 0 && view.leader != frozen).then_some(())
    })
    .await;
    session.keep_alive().await.unwrap();
    let holders = cluster.client_of(others[0]).status("kept").await.holders;
    assert_eq!(holders[0].token, grant.token);
    cluster.converged().await;
}
