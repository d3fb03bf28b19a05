//! Redis goes away, hangs, and comes back.

use std::time::{Duration, Instant};

use holdfast_client::{
    AcquireError, CircuitState, Client, Guarantee, LossReason, ReleaseError, ReleaseOutcome,
    ServedBy, WhenDown,
};
use tokio::time::timeout;

use crate::scene::{LONG, Scene, acquire, connected, eventually, is_busy, lock};
use crate::server::{Durability, RedisServer};

#[tokio::test]
async fn a_redis_that_comes_back_empty_costs_the_locks_and_the_circuit_opens_and_closes() {
    let Some(mut scene) = Scene::start().await else { return };
    let client = scene.client().await;
    let held = [acquire(&client, "a").await, acquire(&client, "b").await];
    let own = lock(&client, "c").ttl(LONG).acquire().await.unwrap();
    let highest = own.token().unwrap();
    let mut circuit = client.efficiency_circuit();
    assert_eq!(client.efficiency().circuit, CircuitState::Closed);

    scene.server.crash();
    let refused = lock(&client, "d").acquire().await.unwrap_err();
    let AcquireError::EfficiencyDown(down) = &refused else { panic!("{refused:?}") };
    assert!(refused.is_retryable(), "{refused}");
    assert!(down.message.contains("127.0.0.1"), "{down}");
    assert_eq!(timeout(LONG, circuit.changed()).await.unwrap(), CircuitState::Open);
    let asked = Instant::now();
    // Also who would wait is told at once.
    let refused = lock(&client, "d").wait(LONG).acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::EfficiencyDown(_)), "{refused:?}");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    held[0].token().expect("no other client can have it yet");

    scene.server.launch().await;
    timeout(LONG, circuit.closed()).await.expect("it closes");
    for guard in held.iter().chain([&own]) {
        assert_eq!(timeout(LONG, guard.lost()).await.unwrap(), LossReason::Gone);
        guard.token().unwrap_err();
    }
    let next = lock(&client, "a").wait(LONG).acquire().await.unwrap();
    assert!(next.token().unwrap() > highest);
    for guard in held {
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Expired));
    }
    next.token().expect("the old guard did not release it");
    eventually("counted", async || client.efficiency().counts.lost == 3).await;
}

#[tokio::test]
async fn a_redis_that_kept_its_data_costs_no_lock() {
    let Some(mut server) = RedisServer::start(Durability::Always).await else { return };
    let backend = holdfast_client::Efficiency::Redis { url: server.url() };
    let client = connected(Client::builder().efficiency(backend)).await;
    let held = acquire(&client, "a").await;
    let renewed = client.efficiency().counts.renewed;
    server.crash();
    let waiting = tokio::spawn(lock(&client, "b").wait(LONG).acquire());
    server.launch().await;
    // Who waits has not noticed more than a delay, unless the restart took long enough for the circuit to open.
    match waiting.await.unwrap() {
        Ok(guard) => assert!(guard.token().unwrap() > held.token().unwrap()),
        Err(error) => assert!(matches!(error, AcquireError::EfficiencyDown(_)), "{error:?}"),
    }
    eventually("looked after", async || client.efficiency().counts.renewed > renewed).await;
    held.token().unwrap();
    assert!(is_busy(&client, "a").await);
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn a_redis_that_hangs_opens_the_circuit_and_what_it_did_late_is_given_back() {
    let Some(mut scene) = Scene::start().await else { return };
    let client = scene.client().await;
    let held = acquire(&client, "a").await;
    let mut circuit = client.efficiency_circuit();
    let mut pause = redis::cmd("CLIENT");
    pause.arg(&["PAUSE", "4000", "ALL"]);
    pause.query_async::<()>(&mut scene.redis).await.unwrap();

    let asked = Instant::now();
    let refused = lock(&client, "b").acquire().await.unwrap_err();
    assert!(refused.may_have_happened(), "{refused:?}");
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert_eq!(timeout(LONG, circuit.changed()).await.unwrap(), CircuitState::Open);
    timeout(LONG, circuit.closed()).await.expect("it closes");
    eventually("given back", async || scene.value("b").await.is_none()).await;
    acquire(&client, "b").await;
    held.token().expect("it was there all the time");
}

#[tokio::test]
async fn an_unanswered_release_is_reported_and_retried() {
    let Some(mut server) = RedisServer::start(Durability::Always).await else { return };
    let backend = holdfast_client::Efficiency::Redis { url: server.url() };
    let client = connected(Client::builder().efficiency(backend)).await;
    let held = acquire(&client, "a").await;
    server.crash();
    let refused = held.release().await.unwrap_err();
    assert!(matches!(refused, ReleaseError::EfficiencyDown(_)), "{refused:?}");
    server.launch().await;
    eventually("released", async || lock(&client, "a").acquire().await.is_ok()).await;
}

#[tokio::test]
async fn work_goes_on_without_a_lock_while_redis_is_down_if_that_is_the_policy() {
    let Some(mut scene) = Scene::start().await else { return };
    let builder = Client::builder()
        .when_down(WhenDown::GoWithout)
        .require_under("once/", Guarantee::BestEffort);
    let client = scene.client_of(builder).await;
    assert_eq!(acquire(&client, "a").await.served_by(), ServedBy::Redis);
    scene.server.crash();
    let mut unlocked = acquire(&client, "a").await;
    assert_eq!((unlocked.guarantee(), unlocked.served_by()), (None, ServedBy::NoStore));
    assert_eq!(unlocked.token().unwrap_err().reason, LossReason::NotLocked);
    assert_eq!(unlocked.fence().unwrap_err().reason, LossReason::NotLocked);
    assert!(!unlocked.is_exclusive());
    assert_eq!(unlocked.run_while_held(async { 7 }).await, Ok(7));
    unlocked.convert_to_shared().await.unwrap_err();
    // Another one does not keep it waiting: nothing is held.
    let other = acquire(&client, "a").await;
    assert_eq!(unlocked.release().await, Ok(ReleaseOutcome::NothingHeld));
    drop(other);
    let refused = lock(&client, "once/1").acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::EfficiencyDown(_)), "{refused:?}");
    let counts = client.efficiency().counts;
    assert_eq!((counts.granted, counts.down, counts.went_without), (1, 3, 2));
}
