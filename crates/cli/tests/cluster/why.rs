//! `holdfast why`: who is in the way, what those wait for themselves, and how long it may take.

use std::time::Duration;

use holdfast_client::Client;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Cluster, PATIENCE, Proxy, data, eventually, run, text};

const LONG: Duration = Duration::from_secs(60);

/// Waits in the background for the lock, then releases it; returns once it is in the queue.
async fn wait_for(client: &Client, actor: u64, name: &str) -> JoinHandle<()> {
    let (queued, when_queued) = oneshot::channel();
    let request = client.lock(name).actor(actor).wait(LONG).on_queued(|_| queued.send(()).unwrap());
    let waiting = tokio::spawn(async move {
        request.acquire().await.unwrap().release().await.unwrap();
    });
    when_queued.await.unwrap();
    waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chain_of_waits_is_told_to_its_end_by_any_node() {
    let cluster = Cluster::start(3).await;
    let (alice, bob, carol) =
        (cluster.library().await, cluster.library().await, cluster.library().await);
    let a = alice.lock("a").actor(1).metadata("close the month").acquire().await.unwrap();
    let b = bob.lock("b").actor(2).acquire().await.unwrap();
    let c = carol.lock("c").actor(3).metadata("copies the disk").acquire().await.unwrap();
    // A second task of Alice waits for something that has nothing to do with a.
    let waits = [
        wait_for(&alice, 1, "b").await,
        wait_for(&alice, 7, "c").await,
        wait_for(&bob, 2, "c").await,
        wait_for(&carol, 9, "a").await,
    ];
    for node in cluster.ids() {
        let endpoints = cluster.client_address(node);
        let why = data(&cluster, 0, &["why", "a", "--endpoints", &endpoints]).await;
        let chain: Vec<String> = why["chain"]
            .as_array()
            .unwrap()
            .iter()
            .map(|link| {
                format!("{} {}->{}", link["depth"], link["in_the_way_of"], link["waits_for"])
                    .replace('"', "")
            })
            .collect();
        assert_eq!(chain, ["1 a->b", "2 b->c"], "{why}");
        assert_eq!(why["holders"][0]["metadata"], "close the month");
        assert_eq!(why["chain"][1]["holders"][0]["metadata"], "copies the disk");
        assert_eq!(why["chain"][1]["waiter"]["position"], 2);
        assert_eq!(why["waiters"][0]["position"], 1);
        assert!(why["estimated_wait_ms"].is_null() && why["hold_times"].is_null(), "{why}");
    }
    let table = text(&run(&cluster, &["why", "a"]).await.stdout);
    assert!(table.contains("in the way of b, waits for c"), "{table}");
    assert!(table.contains("estimate: unknown"), "{table}");
    drop((a, b, c));
    for wait in waits {
        wait.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_estimate_comes_from_holds_that_ended_lately() {
    let cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    for _ in 0..3 {
        let guard = client.lock("job").acquire().await.unwrap();
        // So long does this job take.
        tokio::time::sleep(Duration::from_millis(300)).await;
        guard.release().await.unwrap();
    }
    let held = client.lock("job").acquire().await.unwrap();
    let others = [wait_for(&client, 1, "job").await, wait_for(&client, 2, "job").await];
    let why = data(&cluster, 0, &["why", "job"]).await;
    let times = &why["hold_times"];
    assert_eq!(times["holds"], 3, "{why}");
    let median = times["median_ms"].as_u64().unwrap();
    assert!((290..3_000).contains(&median), "{why}");
    // Two who wait before, and what is left of the hold that is out.
    let estimate = why["estimated_wait_ms"].as_u64().unwrap();
    assert!((2 * median..=3 * median).contains(&estimate), "{why}");
    let table = text(&run(&cluster, &["why", "job"]).await.stdout);
    assert!(table.contains("estimate: about ") && table.contains("the last 3 holds"), "{table}");
    drop(held);
    for other in others {
        other.await.unwrap();
    }
    let free = data(&cluster, 0, &["why", "job"]).await;
    assert_eq!((&free["available"], &free["estimated_wait_ms"]), (&true.into(), &0.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_connection_is_gone_is_told_with_the_end_of_its_session() {
    let cluster = Cluster::start(1).await;
    for _ in 0..3 {
        let client = cluster.library().await;
        client.lock("job").acquire().await.unwrap().release().await.unwrap();
    }
    let proxy = Proxy::to(cluster.client_address(1)).await;
    let builder = Client::builder().ttl(LONG).without_discovery();
    let lost = builder.connect(proxy.address()).await.unwrap();
    let _held = lost.lock("job").acquire().await.unwrap();
    let connected = data(&cluster, 0, &["why", "job"]).await;
    assert!(connected["holders"][0]["disconnected_for_ms_max"].is_null(), "{connected}");
    assert!(connected["estimated_wait_ms"].as_u64().unwrap() < 1_000, "{connected}");

    // Its connection ends, and it finds no way back.
    proxy.cut();
    proxy.break_connections();
    let why = eventually("the node sees the end", PATIENCE, async || {
        let why = data(&cluster, 0, &["why", "job"]).await;
        why["holders"][0]["disconnected_for_ms_max"].is_u64().then_some(why)
    })
    .await;
    let left = why["holders"][0]["session_remaining_ms"].as_u64().unwrap();
    assert_eq!(why["estimated_wait_ms"].as_u64().unwrap(), left, "{why}");
    let table = text(&run(&cluster, &["why", "job"]).await.stdout);
    assert!(table.contains("its client's connection is gone"), "{table}");
    assert!(table.contains("unless its client connects again before"), "{table}");
    assert!(!table.contains("at any moment"), "{table}");
}
