//! Waiting for a lock: by push, and without.

use std::time::{Duration, Instant};

use holdfast_client::{Client, Efficiency};

use crate::scene::{LONG, Scene, acquire, connected, eventually, lock};

/// Shorter than the shortest pause between two tries of a waiter that is notified of releases.
const AT_ONCE: Duration = Duration::from_millis(400);

#[tokio::test]
async fn a_waiter_is_notified_of_a_release() {
    let Some(mut scene) = Scene::start().await else { return };
    let (one, other) = (scene.client().await, scene.client().await);
    for _ in 0..3 {
        let held = acquire(&one, "a").await;
        let waiting = tokio::spawn(lock(&other, "a").wait(LONG).acquire());
        eventually("listens", async || scene.listeners("a").await == 1).await;
        let released_at = Instant::now();
        held.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        assert!(released_at.elapsed() < AT_ONCE, "{:?}", released_at.elapsed());
        next.release().await.unwrap();
        eventually("listens no more", async || scene.listeners("a").await == 0).await;
    }
}

#[tokio::test]
async fn all_waiters_are_served_in_the_end() {
    let Some(scene) = Scene::start().await else { return };
    let clients = [scene.client().await, scene.client().await, scene.client().await];
    let held = acquire(&clients[0], "a").await;
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..30 {
        let request = lock(&clients[number % 3], "a").wait(LONG);
        waiting.spawn(async move {
            let guard = request.acquire().await.unwrap();
            let token = guard.token().unwrap();
            guard.release().await.unwrap();
            token
        });
    }
    held.release().await.unwrap();
    let mut tokens = waiting.join_all().await;
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 30);
}

#[tokio::test]
async fn a_wait_ends_without_push_notifications_too() {
    let Some(mut scene) = Scene::start().await else { return };
    // It may use all keys and no channel: neither subscribe nor publish.
    let mut account = redis::cmd("ACL");
    account.arg(&["SETUSER", "mute", "on", ">secret", "~*", "resetchannels", "+@all"]);
    account.query_async::<()>(&mut scene.redis).await.unwrap();
    let url = scene.server.url().replace("redis://", "redis://mute:secret@");
    let mute = connected(Client::builder().efficiency(Efficiency::Redis { url })).await;
    let held = acquire(&mute, "a").await;
    let waiting = tokio::spawn(lock(&mute, "a").wait(LONG).acquire());
    eventually("asked in vain", async || {
        let mut log = redis::cmd("ACL");
        let denied: Vec<redis::Value> = log.arg("LOG").query_async(&mut scene.redis).await.unwrap();
        !denied.is_empty()
    })
    .await;
    let released_at = Instant::now();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(released_at.elapsed() < Duration::from_secs(2), "{:?}", released_at.elapsed());
}

#[tokio::test]
async fn a_wait_goes_on_when_the_listening_connection_is_cut() {
    let Some(mut scene) = Scene::start().await else { return };
    let (one, other) = (scene.client().await, scene.client().await);
    let held = acquire(&one, "a").await;
    let waiting = tokio::spawn(lock(&other, "a").wait(LONG).acquire());
    eventually("listens", async || scene.listeners("a").await == 1).await;
    let mut cut = redis::cmd("CLIENT");
    cut.arg(&["KILL", "TYPE", "pubsub"]);
    cut.query_async::<i64>(&mut scene.redis).await.unwrap();
    eventually("listens again", async || scene.listeners("a").await == 1).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_acquire_that_is_dropped_leaves_nothing_behind() {
    let Some(mut scene) = Scene::start().await else { return };
    let client = scene.client().await;
    for round in 0..50 {
        let asking = tokio::spawn(lock(&client, "a").acquire());
        for _ in 0..round % 10 {
            tokio::task::yield_now().await;
        }
        asking.abort();
        drop(asking.await);
    }
    eventually("free", async || scene.value("a").await.is_none()).await;
    acquire(&client, "a").await;
}
