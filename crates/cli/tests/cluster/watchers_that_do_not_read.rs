//! Watchers that never read: they cost bounded memory, slow nothing, and are told when they look again.

use std::cell::Cell;
use std::time::{Duration, Instant};

use holdfast_client::Client;
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_proto::v1::{WatchFrame, WatchRequest};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Streaming;

use crate::support::{Cluster, ClusterOptions, PATIENCE, eventually, metric, metrics};

const WATCHERS: usize = 8;
const EVENTS_KEPT: u64 = 1_000;
const WORKERS: usize = 16;
/// Of metadata, so that what is kept for a watcher would be seen.
const SAID_BYTES: usize = 1_000;
/// 16 frames for each watcher, what its connection buffers, and what an allocator keeps of that.
const GROWTH_MAX: f64 = 64e6;

/// Takes and releases locks, and tells how long that took. Each time makes two events.
async fn work(client: &Client, times: usize) -> Duration {
    let begun = Instant::now();
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let client = client.clone();
        workers.spawn(async move {
            for _ in 0..times / WORKERS {
                let request = client.lock(format!("unread/{worker}"));
                let guard = request.metadata(vec![b'x'; SAID_BYTES]).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended.unwrap();
    }
    begun.elapsed()
}

/// A watch on a connection of its own, of which only the beginning is read.
async fn watch_and_read_no_more(address: &str) -> Streaming<WatchFrame> {
    let mut service = WatchServiceClient::connect(format!("http://{address}")).await.unwrap();
    let request = WatchRequest { without_snapshot: true, ..Default::default() };
    let mut frames = service.watch(request).await.unwrap().into_inner();
    timeout(PATIENCE, frames.message()).await.unwrap().unwrap().unwrap();
    frames
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_that_never_read_cost_bounded_memory_slow_nothing_and_are_told() {
    let settings = format!("events_kept = {EVENTS_KEPT}");
    let cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    let client = cluster.library().await;
    let leader = cluster.leader().await;
    let (address, http) = (cluster.client_address(leader), cluster.http_address(leader));
    let memory = || async { metric(&metrics(&http).await, "process_resident_memory_bytes") };
    // The ring is full from here on: what grows now grows because of a client.
    work(&client, 1_000).await;
    let before = memory().await;
    let alone = work(&client, 400).await.min(work(&client, 400).await);

    let mut unread = Vec::new();
    for _ in 0..WATCHERS {
        unread.push(watch_and_read_no_more(&address).await);
    }
    let beside = work(&client, 400).await.min(work(&client, 400).await);
    // Some of it still goes into their connections. Once nothing does, the ring leaves them behind.
    let most = Cell::new(0_f64);
    let ended = eventually("all of them are cut off", PATIENCE, || async {
        work(&client, 600).await;
        let text = metrics(&http).await;
        most.set(most.get().max(metric(&text, "process_resident_memory_bytes")));
        (metric(&text, "holdfast_watches_left_behind_total") == WATCHERS as f64).then_some(text)
    })
    .await;
    let most = most.get();
    println!(
        "RSS {:.1} MB before, {:.1} MB at most with {WATCHERS} unread watches; 400 locks took {alone:?} \
         without them and {beside:?} with them",
        before / 1e6,
        most / 1e6
    );
    assert!(most - before < GROWTH_MAX, "{before} bytes became {most}");
    assert!(beside < alone * 3, "{alone:?} became {beside:?}");
    assert_eq!(metric(&ended, "holdfast_watch_streams"), 0.0, "{ended}");
    for mut frames in unread {
        let end = loop {
            match timeout(PATIENCE, frames.message()).await.unwrap() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended without a word"),
                Err(status) => break status,
            }
        };
        let reason = end.metadata().get("holdfast-reason").unwrap();
        assert_eq!(reason.to_str().unwrap(), "slow_reader", "{end:?}");
    }
}
