//! Five independent Redis.

use std::time::Duration;

use holdfast_client::{
    AcquireError, CircuitState, Client, Efficiency, Guarantee, LossReason, ReleaseOutcome, ServedBy,
};
use tokio::time::timeout;

use crate::scene::{LONG, acquire, connected, eventually, is_busy, lock};
use crate::server::{Durability, RedisServer};

struct Five(Vec<RedisServer>);

impl Five {
    /// `None` if Redis is not installed.
    async fn start() -> Option<Five> {
        let mut servers = Vec::new();
        for _ in 0..5 {
            servers.push(RedisServer::start(Durability::None).await?);
        }
        Some(Five(servers))
    }

    fn builder(&self) -> holdfast_client::ClientBuilder {
        let urls = self.0.iter().map(RedisServer::url).collect();
        Client::builder().efficiency(Efficiency::Redlock { urls })
    }

    async fn client(&self) -> Client {
        connected(self.builder()).await
    }

    /// On how many there is something of the lock.
    async fn holding(&self, which: std::ops::Range<usize>, name: &str) -> usize {
        let mut count = 0;
        for server in &self.0[which] {
            let mut exists = redis::cmd("EXISTS");
            exists.arg(format!("holdfast:lock:{name}"));
            let found: usize = exists.query_async(&mut server.connect().await).await.unwrap();
            count += found;
        }
        count
    }
}

#[tokio::test]
async fn redlock_serves_with_two_of_five_servers_down_and_refuses_with_three() {
    let Some(mut five) = Five::start().await else { return };
    let (one, other) = (five.client().await, five.client().await);
    let held = acquire(&one, "a").await;
    assert_eq!(held.guarantee(), Some(Guarantee::BestEffort));
    assert_eq!(held.served_by(), ServedBy::Redlock);
    assert_eq!(five.holding(0..5, "a").await, 5);
    assert!(is_busy(&other, "a").await);
    // One of them has counted much further than the others, and will not be there to say so.
    let mut far_ahead = redis::cmd("INCRBY");
    far_ahead.arg("holdfast:tokens").arg(1_000_000);
    far_ahead.query_async::<u64>(&mut five.0[0].connect().await).await.unwrap();
    let mut last = acquire(&one, "b").await.token().unwrap();
    assert!(last > held.token().unwrap() + 1_000_000);

    five.0[0].crash();
    five.0[1].crash();
    assert!(is_busy(&other, "a").await);
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    for client in [&other, &one, &other] {
        let next = acquire(client, "a").await;
        assert!(next.token().unwrap() > last, "{:?} after {last}", next.token());
        last = next.token().unwrap();
        next.release().await.unwrap();
        assert_eq!(five.holding(2..5, "a").await, 0, "released on all");
    }
    assert_eq!(one.efficiency().circuit, CircuitState::Closed);
    let held = acquire(&one, "b").await;

    five.0[2].crash();
    let refused = lock(&one, "c").acquire().await.unwrap_err();
    let AcquireError::EfficiencyDown(down) = &refused else { panic!("{refused:?}") };
    assert!(down.message.contains("fewer than 3 of 5"), "{down}");
    assert_eq!(five.holding(3..5, "c").await, 0, "no part of a lock stays behind");
    let mut circuit = one.efficiency_circuit();
    assert_eq!(timeout(LONG, circuit.changed()).await.unwrap(), CircuitState::Open);
    held.token().expect("its time is not over");

    five.0[0].launch().await;
    timeout(LONG, circuit.closed()).await.expect("it closes");
    let next = lock(&one, "a").wait(LONG).acquire().await.unwrap();
    assert!(next.token().unwrap() > last);
    // Of the three that had it, one is gone and the one that is back knows nothing of it.
    drop(held);
}

#[tokio::test]
async fn a_hold_that_no_majority_knows_of_any_more_is_lost() {
    let Some(mut five) = Five::start().await else { return };
    let client = five.client().await;
    let (held, kept) = (acquire(&client, "a").await, acquire(&client, "b").await);
    for number in 0..2 {
        five.0[number].crash();
        five.0[number].launch().await;
    }
    let renewed = client.efficiency().counts.renewed;
    let other = five.client().await;
    assert!(is_busy(&other, "a").await, "three of five still know of it");
    for server in &five.0[2..3] {
        let mut delete = redis::cmd("DEL");
        delete.arg("holdfast:lock:a");
        delete.query_async::<i64>(&mut server.connect().await).await.unwrap();
    }
    // It looks when servers come back.
    five.0[0].crash();
    drop(lock(&client, "c").acquire().await);
    five.0[0].launch().await;
    assert_eq!(timeout(LONG, held.lost()).await.unwrap(), LossReason::Gone);
    eventually("looked after", async || client.efficiency().counts.renewed > renewed).await;
    kept.token().expect("three of five know of it");
}

#[tokio::test]
async fn a_waiter_gets_a_released_lock_and_a_lock_that_is_not_extended_ends() {
    let Some(five) = Five::start().await else { return };
    let short = connected(five.builder().ttl(Duration::from_millis(1_500))).await;
    let other = five.client().await;
    let held = acquire(&short, "a").await;
    let refused = lock(&other, "a").wait(Duration::from_millis(2_500)).acquire().await.unwrap_err();
    assert_eq!(refused, AcquireError::TimedOut);
    held.token().expect("it is renewed");
    let waiting = tokio::spawn(lock(&other, "a").wait(LONG).acquire());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();

    let own = lock(&short, "a").ttl(Duration::from_millis(500)).acquire().await.unwrap();
    lock(&other, "a").wait(LONG).acquire().await.unwrap();
    assert_eq!(own.token().unwrap_err().reason, LossReason::OwnTimeOver);
}

#[tokio::test]
async fn contenders_for_one_lock_get_it_one_after_the_other_under_rising_tokens() {
    let Some(five) = Five::start().await else { return };
    let clients = [five.client().await, five.client().await, five.client().await];
    let inside = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut working = tokio::task::JoinSet::new();
    for client in clients {
        let inside = std::sync::Arc::clone(&inside);
        working.spawn(async move {
            for _ in 0..5 {
                let guard = lock(&client, "a").wait(LONG).acquire().await.unwrap();
                let token = guard.token().unwrap();
                inside.lock().unwrap().push(token);
                tokio::task::yield_now().await;
                assert_eq!(
                    inside.lock().unwrap().last(),
                    Some(&token),
                    "another holder came between"
                );
                guard.release().await.unwrap();
            }
        });
    }
    working.join_all().await;
    let tokens = std::sync::Arc::into_inner(inside).unwrap().into_inner().unwrap();
    assert_eq!(tokens.len(), 15);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}
