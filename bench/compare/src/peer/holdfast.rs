//! Holdfast itself, through its client library.

use std::time::Duration;

use holdfast_bench::frames::Session;
use holdfast_bench::holdfast::{Holdfast, HoldfastClient};
use holdfast_bench::{Cluster, Connections, Outcome, Servers};
use holdfast_client::{Client, Tier};
use tonic::transport::Endpoint;

use super::observers::Observers;
use crate::server::Installation;
use crate::service::Service;

const PAUSE: Duration = Duration::from_millis(50);
/// Locks of one session.
const HELD_BY_ONE: usize = 1_000;
const HELD_TTL_MS: u64 = 24 * 60 * 60 * 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    ThreeNodes,
    FiveNodes,
    Efficiency,
    Observed,
    Full,
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
    pub(crate) async fn start(installation: &Installation, kind: Kind) -> Outcome<OwnCluster> {
        let nodes = if kind == Kind::FiveNodes { 5 } else { 3 };
        let tier = if kind == Kind::Efficiency { Tier::Efficiency } else { Tier::Correctness };
        let (cluster, observers) = if kind == Kind::Observed {
            let cluster = Cluster::start_observed(&installation.holdfast).await?;
            let observers = Observers::of(&cluster).await?;
            (cluster, Some(observers))
        } else {
            (Cluster::start(&installation.holdfast, nodes, "").await?, None)
        };
        let clients =
            Holdfast { endpoints: cluster.endpoints.clone(), tier, builder: Client::builder() };
        Ok(OwnCluster { cluster, clients, kind, killed: None, _observers: observers })
    }
}

impl OwnCluster {
    /// Three nodes in which so many locks are held. Their sessions have no stream any more, and outlive the run.
    pub(crate) async fn start_full(
        installation: &Installation,
        held: usize,
    ) -> Outcome<OwnCluster> {
        let own = OwnCluster::start(installation, Kind::Full).await?;
        let leader = Cluster::leader_of(own.cluster.calls()).await?;
        let channel = Endpoint::from_shared(format!("http://{leader}"))?.connect().await?;
        for first in (0..held).step_by(HELD_BY_ONE) {
            let mut session = Session::open(channel.clone(), HELD_TTL_MS).await?;
            session.acquire_numbered(first..(first + HELD_BY_ONE).min(held)).await?;
        }
        Ok(own)
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
            Kind::Full => "holdfast-full",
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

    fn own_cluster(&mut self) -> Option<&mut Cluster> {
        Some(&mut self.cluster)
    }
}
