//! W9: do others notice that snapshots of a large state are taken, sent and installed? And how long does a cluster with such
//! a state take to come back?
//!
//! Each half begins with all nodes killed at one moment and started again, with settings under which they take no
//! snapshot, or one after the other.

use std::time::{Duration, Instant};

use holdfast_bench::{
    Cluster, Length, Outcome, Turn, clients_over, close_all, workload::uncontended,
};

use crate::figures::Figures;
use crate::service::Service;

const NONE: &str = "snapshot_every_entries = 100000000\nsnapshot_every_bytes = 1099511627776";
const ONE_AFTER_THE_OTHER: &str = "snapshot_every_entries = 100";
/// Nodes with these settings keep so many entries of what a snapshot covers.
const KEPT_ENTRIES: u64 = 100;
const USUAL: &str = "";
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);
/// The load goes on all the time.
const LAG_OF_ONE_WHO_IS_BACK: u64 = 100;

pub(super) async fn noticed<S: Service>(
    service: &mut S,
    clients: usize,
    connections: usize,
    length: Length,
) -> Outcome<Option<Figures>> {
    let Some(cluster) = service.own_cluster() else { return Ok(None) };
    let mut restarts = vec![cluster.restart(NONE).await?];
    let without = load(service, clients, connections, length).await?;

    let Some(cluster) = service.own_cluster() else { return Ok(None) };
    // It does not count: they were forbidden to cut their logs, and have all of that load to apply again.
    cluster.restart(ONE_AFTER_THE_OTHER).await?;
    let away = cluster.follower().await?;
    let leader = cluster.leader().await?;
    cluster.kill(away)?;
    let has = cluster.matched(away).await?;
    let deadline = Instant::now() + PATIENCE;
    while cluster.last_snapshot(leader)? <= has + KEPT_ENTRIES {
        if Instant::now() > deadline {
            return Err("the leader takes no snapshot".into());
        }
        // Without entries there is nothing to take one of.
        cluster.serving().await?;
    }

    let servers = service.servers();
    let all = clients_over(service, clients, connections).await?;
    let Some(cluster) = service.own_cluster() else { return Ok(None) };
    let (during, came_back) =
        tokio::join!(uncontended(&all, length, &servers), bring_back(cluster, away, length));
    let took = came_back?;
    close_all(all).await?;
    if took > length.measured {
        return Err(format!("node {away} took {took:?} to come back: longer than the turn").into());
    }
    restarts.push(cluster.restart(USUAL).await?);
    let restarts_seconds = restarts.iter().map(Duration::as_secs_f64).collect();
    Ok(Some(Figures::Snapshots { without, during: during?, restarts_seconds }))
}

async fn load<S: Service>(
    service: &S,
    clients: usize,
    connections: usize,
    length: Length,
) -> Outcome<Turn> {
    let clients = clients_over(service, clients, connections).await?;
    let turn = uncontended(&clients, length, &service.servers()).await?;
    close_all(clients).await?;
    Ok(turn)
}

/// After the warm-up. Returns how long it took until the node had the leader's snapshot, and what came after it.
async fn bring_back(cluster: &mut Cluster, node: u64, length: Length) -> Outcome<Duration> {
    tokio::time::sleep(length.warm_up).await;
    let began = Instant::now();
    cluster.start_again(node)?;
    let installs = cluster.snapshot_installs()?;
    while cluster.lag(node).await? > LAG_OF_ONE_WHO_IS_BACK {
        if began.elapsed() > PATIENCE {
            return Err(format!("node {node} does not come back").into());
        }
        tokio::time::sleep(PAUSE).await;
    }
    let took = began.elapsed();
    if cluster.snapshot_installs()? <= installs {
        return Err(format!("node {node} was not sent a snapshot").into());
    }
    Ok(took)
}
