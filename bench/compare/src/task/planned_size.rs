//! W8: the size that Holdfast is planned for.

use std::time::Duration;

use holdfast_bench::workload::{self, Heartbeats, Sessions};
use holdfast_bench::{Cluster, Length, Locks, Outcome, Turn, clients_over, close_all};

use crate::figures::Figures;
use crate::service::Service;

/// Longer than the time between heartbeats, so that every session has its share.
const IDLE: Duration = Duration::from_secs(20);

pub(super) struct Load {
    pub(super) sessions: usize,
    pub(super) connections: usize,
    pub(super) operations_per_second: f64,
    pub(super) heartbeats: Heartbeats,
    pub(super) length: Length,
}

/// Each session holds its share of the locks, and takes and gives back others at this rate.
pub(super) async fn offered<S: Service>(
    service: &mut S,
    sessions: usize,
    locks: usize,
    operations_per_second: f64,
    length: Length,
) -> Outcome<Option<Turn>>
where
    <S::Client as Locks>::Held: 'static,
{
    let servers = service.servers();
    let clients = clients_over(service, sessions, sessions).await?;
    let held = workload::hold(&clients, locks).await?;
    let offered = workload::open_loop(&clients, operations_per_second, length, &servers).await?;
    // In this order: half a million releases of all others at once would keep the first from being closed.
    close_all(clients).await?;
    drop(held);
    if let Some(failure) = offered.failure {
        return Err(format!("an operation failed: {failure}").into());
    }
    if offered.overwhelmed {
        return Err("the service was overwhelmed".into());
    }
    Ok(Some(offered.turn))
}

/// Only for Holdfast: others have no sessions that share a connection.
pub(super) async fn sessions<S: Service>(service: &mut S, load: Load) -> Outcome<Option<Figures>> {
    let Some(cluster) = service.own_cluster() else { return Ok(None) };
    let leader = Cluster::leader_of(cluster.calls()).await?;
    let servers = service.servers();
    let mut sessions =
        Sessions::open(&leader, load.sessions, load.connections, load.heartbeats).await?;
    let idle = sessions.idle(IDLE, &servers).await?;
    let turn = sessions.write(load.operations_per_second, load.length, &servers).await?;
    sessions.close().await?;
    Ok(Some(Figures::Sessions { idle, load: turn }))
}
