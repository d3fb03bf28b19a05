//! Watches and observations that go on where they were, or say that they could not.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_client::{Client, Observed, Watch, Watched};
use holdfast_proto::v1::EventKind;
use tokio::time::timeout;

use crate::support::{Cluster, ClusterOptions, Proxy};

const LONG: Duration = Duration::from_secs(30);

async fn next(watch: &mut Watch) -> Watched {
    timeout(LONG, watch.next()).await.expect("nothing comes").unwrap()
}

async fn lock_and_release(client: &Client, name: &str) -> u64 {
    let guard = client.lock(name).wait(LONG).acquire().await.unwrap();
    let token = guard.token().unwrap();
    guard.release().await.unwrap();
    token
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_the_library_tells_everything_once_though_its_nodes_are_killed() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.library().await;
    let held = client.lock("w/held").acquire().await.unwrap();
    let mut watch = client.watch("w/");
    let Watched::Snapshot { locks, complete: true } = next(&mut watch).await else {
        panic!("a snapshot comes first");
    };
    assert_eq!(locks.len(), 1);
    assert_eq!((locks[0].name.as_str(), locks[0].token), ("w/held", held.token().unwrap()));

    let mut expected = Vec::new();
    for _ in 0..2 {
        let killed = cluster.leader().await;
        cluster.kill(killed);
        for number in 0..20 {
            let token = lock_and_release(&client, &format!("w/{number}")).await;
            lock_and_release(&client, "elsewhere").await;
            expected.extend([(EventKind::Granted, token), (EventKind::Released, token)]);
        }
        cluster.launch(killed);
        cluster.leader().await;
    }
    let mut reported = Vec::new();
    while reported.len() < expected.len() {
        let Watched::Events(events) = next(&mut watch).await else {
            panic!("only events come now")
        };
        reported.extend(events.iter().map(|event| (event.kind(), event.token)));
    }
    assert_eq!(reported, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_away_for_longer_than_events_are_kept_is_told_so_and_then_what_is() {
    let settings = "events_kept = 1000".to_owned();
    let cluster = Cluster::start_with(ClusterOptions { nodes: 3, settings }).await;
    let proxy = Proxy::to(cluster.client_address(1)).await;
    let away =
        Client::builder().ttl(LONG).without_discovery().connect(proxy.address()).await.unwrap();
    let client = cluster.library().await;
    let mut watch = away.watch("w/");
    assert_eq!(next(&mut watch).await, Watched::Snapshot { locks: Vec::new(), complete: true });
    let mut observer = away.election("boss").observe();
    assert_eq!(timeout(LONG, observer.next()).await.unwrap().unwrap(), Observed::Vacant);

    proxy.cut();
    for _ in 0..400 {
        lock_and_release(&client, "w/busy").await;
        lock_and_release(&client, "boss").await;
    }
    let leadership = client.election("boss").campaign("last").await.unwrap();
    let held = client.lock("w/held").acquire().await.unwrap();
    proxy.break_connections();
    proxy.heal();

    // What the node had sent before the wire was cut may come yet; then it is told that there is a gap.
    let restarted = loop {
        match next(&mut watch).await {
            Watched::Events(_) => {}
            other => break other,
        }
    };
    assert!(matches!(&restarted, Watched::Restarted { why } if !why.is_empty()), "{restarted:?}");
    let Watched::Snapshot { locks, .. } = next(&mut watch).await else { panic!("no snapshot") };
    let names: BTreeSet<_> = locks.iter().map(|lock| lock.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["w/held"]));
    let missed = loop {
        match timeout(LONG, observer.next()).await.unwrap().unwrap() {
            Observed::Leader(_) | Observed::Vacant => {}
            other => break other,
        }
    };
    assert!(matches!(&missed, Observed::Missed { .. }), "{missed:?}");
    let now = timeout(LONG, observer.next()).await.unwrap().unwrap();
    let Observed::Leader(leader) = now else { panic!("{now:?}") };
    assert_eq!((leader.epoch, leader.value), (leadership.epoch().unwrap(), b"last".to_vec()));
    held.token().unwrap();
}
