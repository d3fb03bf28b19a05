//! Holdfast itself, through its client library.

use holdfast_bench::holdfast::{Holdfast, HoldfastClient};
use holdfast_bench::{Cluster, Connections, Outcome, Servers};
use holdfast_client::Tier;

use super::Service;
use crate::server::Place;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    ThreeNodes,
    FiveNodes,
    Efficiency,
}

#[derive(Debug)]
pub(crate) struct OwnCluster {
    cluster: Cluster,
    clients: Holdfast,
    kind: Kind,
}

impl OwnCluster {
    pub(crate) async fn start(place: &Place, kind: Kind) -> Outcome<OwnCluster> {
        let nodes = if kind == Kind::FiveNodes { 5 } else { 3 };
        let tier = if kind == Kind::Efficiency { Tier::Efficiency } else { Tier::Correctness };
        let cluster = Cluster::start(&place.holdfast, nodes, "").await?;
        let clients = Holdfast { endpoints: cluster.endpoints.clone(), tier };
        Ok(OwnCluster { cluster, clients, kind })
    }
}

impl Connections for OwnCluster {
    type Client = HoldfastClient;

    async fn connect(&self) -> Outcome<HoldfastClient> {
        self.clients.connect().await
    }
}

impl Service for OwnCluster {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::ThreeNodes => "holdfast",
            Kind::FiveNodes => "holdfast5",
            Kind::Efficiency => "holdfast-efficiency",
        }
    }

    fn servers(&self) -> Servers {
        self.cluster.servers()
    }
}
