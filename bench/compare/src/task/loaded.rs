//! W3 without a kill: no node is elected, however busy the nodes are.

use holdfast_bench::{Length, Outcome, clients_over, close_all, workload};

use crate::figures::Figures;
use crate::service::Service;

pub(super) async fn elections<S: Service>(
    service: &mut S,
    clients: usize,
    connections: usize,
    length: Length,
) -> Outcome<Option<Figures>> {
    let servers = service.servers();
    let clients = clients_over(service, clients, connections).await?;
    let Some(cluster) = service.own_cluster() else { return Ok(None) };
    // A term has one election, whether or not a node wins it.
    let before = cluster.term().await?;
    let load = workload::uncontended(&clients, length, &servers).await?;
    let elections = cluster.term().await?.saturating_sub(before);
    close_all(clients).await?;
    Ok(Some(Figures::Loaded { elections, load }))
}
