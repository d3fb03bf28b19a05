//! Holdfast itself, through its client library.

use std::time::Duration;

use holdfast_bench::holdfast::{Holdfast, HoldfastClient};
use holdfast_bench::{Cluster, Connections, Outcome, Servers};
use holdfast_client::Tier;

use super::Service;
use super::observers::Observers;
use crate::server::Place;

const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    ThreeNodes,
    FiveNodes,
    Efficiency,
    Observed,
}

#[derive(Debug)]
pub(crate) struct OwnCluster {
    cluster: Cluster,
    clients: Holdfast,
    kind: Kind,
    killed: Option<u64>,
    _observers: Option<Observers>,
}

impl OwnCluster {
    pub(crate) async fn start(place: &Place, kind: Kind) -> Outcome<OwnCluster> {
        let nodes = if kind == Kind::FiveNodes { 5 } else { 3 };
        let tier = if kind == Kind::Efficiency { Tier::Efficiency } else { Tier::Correctness };
        let (cluster, observers) = if kind == Kind::Observed {
            let cluster = Cluster::start_observed(&place.holdfast).await?;
            let observers = Observers::of(&cluster).await?;
            (cluster, Some(observers))
        } else {
            (Cluster::start(&place.holdfast, nodes, "").await?, None)
        };
        let clients = Holdfast { endpoints: cluster.endpoints.clone(), tier };
        Ok(OwnCluster { cluster, clients, kind, killed: None, _observers: observers })
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
            Kind::Observed => "holdfast-observed",
        }
    }

    fn servers(&self) -> Servers {
        self.cluster.servers()
    }

    async fn kill_leader(&mut self) -> Outcome<bool> {
        let leader = self.cluster.leader().await?;
        self.cluster.kill(leader)?;
        self.killed = Some(leader);
        Ok(true)
    }

    async fn bring_back(&mut self) -> Outcome {
        let Some(node) = self.killed.take() else { return Ok(()) };
        self.cluster.start_again(node)?;
        self.cluster.serving().await?;
        while self.cluster.lag(node).await? > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn own_leader(&self) -> Outcome<Option<String>> {
        Cluster::leader_of(self.cluster.calls()).await.map(Some)
    }
}
