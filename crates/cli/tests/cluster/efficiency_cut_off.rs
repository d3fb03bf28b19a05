//! The efficiency tier when a holder loses the leader that kept its lock: the guard ends, long before its TTL.

use std::time::{Duration, Instant};

use holdfast_client::{Client, Guard, LockRequest, LossReason, Tier};

use crate::support::{Cluster, Proxy, eventually};

const TTL: Duration = Duration::from_secs(60);
/// A small part of the TTL, and far more than a leader or a client needs to notice.
const SOON: Duration = Duration::from_secs(12);

fn fast(client: &Client, name: &str) -> LockRequest {
    client.lock(name).tier(Tier::Efficiency)
}

/// A client that knows one address only.
async fn client_at(address: &str) -> Client {
    Client::builder().ttl(TTL).without_discovery().connect(address).await.unwrap()
}

async fn lost_soon(guard: &Guard) -> LossReason {
    let since = Instant::now();
    let lost = tokio::time::timeout(SOON, guard.lost()).await;
    let reason = lost.unwrap_or_else(|_| panic!("{} is still trusted", guard.name()));
    println!("lost after {:?}: {reason}", since.elapsed());
    assert!(guard.token().is_err() && guard.fence().is_err());
    reason
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_ends_when_its_leader_has_lost_the_quorum_and_no_other_node_can_be_reached() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let client = client_at(&cluster.client_address(leader)).await;
    let held = fast(&client, "report").acquire().await.unwrap();
    let replicated = client.lock("report").acquire().await.unwrap();
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    others.iter().for_each(|id| cluster.freeze(*id));
    assert_eq!(lost_soon(&held).await, LossReason::LeaderUnreachable);
    replicated.token().expect("the session lives, and so does what is in the replicated table");
    others.iter().for_each(|id| cluster.thaw(*id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_ends_when_nothing_comes_from_the_node_any_more() {
    let cluster = Cluster::start(1).await;
    let proxy = Proxy::to(cluster.client_address(1)).await;
    let client = client_at(proxy.address()).await;
    let held = fast(&client, "report").acquire().await.unwrap();
    proxy.cut();
    assert_eq!(lost_soon(&held).await, LossReason::LeaderUnreachable);
    proxy.heal();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_ended_with_its_stream_is_given_back_to_the_leader_that_still_has_it() {
    let cluster = Cluster::start(1).await;
    let proxy = Proxy::to(cluster.client_address(1)).await;
    let client = client_at(proxy.address()).await;
    let other = client_at(&cluster.client_address(1)).await;
    let held = fast(&client, "report").acquire().await.unwrap();
    let replicated = client.lock("report").acquire().await.unwrap();
    proxy.break_connections();
    assert_eq!(lost_soon(&held).await, LossReason::LeaderUnreachable);
    // Its session goes on, and would keep the lock for ever.
    let next = eventually("the lock is free again", SOON, || async {
        fast(&other, "report").acquire().await.ok()
    })
    .await;
    replicated.token().unwrap();
    // What ended is released without harm to the next holder.
    held.release().await.unwrap();
    next.token().unwrap();
}
