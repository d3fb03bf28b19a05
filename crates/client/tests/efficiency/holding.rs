//! What is held, by whom, and until when.

use std::sync::mpsc;
use std::time::Duration;

use holdfast_client::{AcquireError, Client, Guarantee, LossReason, ReleaseOutcome, ServedBy};
use tokio::time::timeout;

use crate::scene::{LONG, Scene, acquire, eventually, is_busy, lock};

#[tokio::test]
async fn one_client_holds_at_a_time_under_a_best_effort_token() {
    let Some(mut scene) = Scene::start().await else { return };
    let (one, other) = (scene.client().await, scene.client().await);
    let held = acquire(&one, "a").await;
    assert_eq!(held.guarantee(), Some(Guarantee::BestEffort));
    assert_eq!(held.served_by(), ServedBy::Redis);
    assert!(held.fence().unwrap().starts_with("hf1.B."));
    assert!(held.is_exclusive() && held.is_valid_for(Duration::from_secs(20)));
    assert!(is_busy(&other, "a").await);
    assert!(is_busy(&one, "a").await, "the same client is a stranger like any other");
    acquire(&other, "b").await;

    let first = held.token().unwrap();
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(scene.value("a").await, None);
    let next = acquire(&other, "a").await;
    assert!(next.token().unwrap() > first);
    // A guard that goes out of scope gives back what it held.
    drop(next);
    eventually("released", async || scene.value("a").await.is_none()).await;
    let counts = other.efficiency().counts;
    assert_eq!((counts.granted, counts.busy, counts.down, counts.lost), (2, 1, 0, 0));
}

#[tokio::test]
async fn a_lock_that_another_holder_has_by_now_is_not_released() {
    let Some(mut scene) = Scene::start().await else { return };
    let client = scene.client().await;
    let held = acquire(&client, "a").await;
    scene.set_value("a", "another client").await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Expired));
    assert_eq!(scene.value("a").await.as_deref(), Some("another client"));
}

#[tokio::test]
async fn a_redis_lock_is_kept_past_its_ttl_and_its_removal_is_noticed() {
    let Some(mut scene) = Scene::start().await else { return };
    let short = || Client::builder().ttl(Duration::from_millis(1_500));
    let (one, other) = (scene.client_of(short()).await, scene.client_of(short()).await);
    let held = acquire(&one, "a").await;
    let refused = lock(&other, "a").wait(Duration::from_millis(2_500)).acquire().await.unwrap_err();
    assert_eq!(refused, AcquireError::TimedOut);
    held.token().expect("it is renewed");
    assert!(one.efficiency().counts.renewed >= 3, "{:?}", one.efficiency());

    scene.set_value("a", "another client").await;
    assert_eq!(timeout(LONG, held.lost()).await.unwrap(), LossReason::Gone);
    held.token().unwrap_err();
    eventually("counted", async || one.efficiency().counts.lost == 1).await;
}

/// The holder's whole runtime stands still, like a process that is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_pauses_past_its_ttl_gives_no_token_and_does_not_touch_the_next_hold() {
    let Some(mut scene) = Scene::start().await else { return };
    let (reported, hear) = tokio::sync::oneshot::channel();
    let (wake, sleep) = mpsc::channel();
    let builder = Client::builder().ttl(Duration::from_secs(1)).efficiency(scene.backend());
    let paused = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let client = crate::scene::connected(builder).await;
            let held = acquire(&client, "a").await;
            reported.send(held.token().unwrap()).unwrap();
            sleep.recv().unwrap();
            let lost = held.token().unwrap_err();
            assert!(held.run_while_held(async { panic!("it must not begin") }).await.is_err());
            (lost.reason, held.release().await.unwrap())
        })
    });
    let first = hear.await.unwrap();
    let next = lock(&scene.client().await, "a").wait(LONG).acquire().await.unwrap();
    assert!(next.token().unwrap() > first);
    let value = scene.value("a").await.expect("the next one's");
    wake.send(()).unwrap();
    let woke = tokio::task::spawn_blocking(|| paused.join().unwrap()).await.unwrap();
    assert_eq!(woke, (LossReason::Expired, ReleaseOutcome::Expired));
    assert_eq!(scene.value("a").await, Some(value));
    next.token().unwrap();
}

#[tokio::test]
async fn a_ttl_of_its_own_ends_a_hold_unless_the_caller_renews_it() {
    let Some(scene) = Scene::start().await else { return };
    let client = scene.client().await;
    let own = Duration::from_millis(500);
    let held = lock(&client, "a").ttl(own).acquire().await.unwrap();
    held.renew(Some(LONG)).await.unwrap();
    assert!(held.is_valid_for(Duration::from_secs(20)));
    held.renew(Some(own)).await.unwrap();
    assert!(held.valid_for() <= own);
    timeout(LONG, held.at_risk()).await.unwrap();
    assert_eq!(timeout(LONG, held.lost()).await.unwrap(), LossReason::OwnTimeOver);
    // The server lets it live a little longer than its holder trusts it.
    let next = lock(&client, "a").wait(LONG).acquire().await.unwrap();
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Expired));
    next.token().unwrap();
}

#[tokio::test]
async fn a_maximum_ends_a_hold_whatever_is_renewed() {
    let Some(scene) = Scene::start().await else { return };
    let builder = Client::builder().ttl(Duration::from_millis(900));
    let client = scene.client_of(builder).await;
    let held = lock(&client, "a").max_hold(Duration::from_millis(2_400)).acquire().await.unwrap();
    assert_eq!(timeout(LONG, held.lost()).await.unwrap(), LossReason::OwnTimeOver);
    assert!(client.efficiency().counts.renewed >= 2);
    lock(&client, "a").wait(LONG).acquire().await.unwrap();
}

#[tokio::test]
async fn closing_the_client_releases_all_locks_and_its_guards_notice() {
    let Some(mut scene) = Scene::start().await else { return };
    let builder = Client::builder().request_timeout(Duration::from_millis(300));
    let client = scene.client_of(builder).await;
    let clone = client.clone();
    let held = acquire(&client, "a").await;
    // The cluster of this test does not answer.
    client.close().await.unwrap_err();
    assert_eq!(timeout(LONG, held.lost()).await.unwrap(), LossReason::SessionClosed);
    assert_eq!(scene.value("a").await, None);
    assert_eq!(lock(&clone, "a").acquire().await.unwrap_err(), AcquireError::Closed);
}
