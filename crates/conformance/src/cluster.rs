//! Three real nodes. The driver reaches them over wires that can be cut; the suite's own clients reach them directly.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_client::Client;
use holdfast_client::unary::Unary;
use holdfast_cluster_kit::{Addresses, Network, Nodes, Plan, WallClocks};
use tempfile::TempDir;

use crate::audit::Audit;
use crate::finding::{Checked, Finding, broken};

const NODES: u64 = 3;
const READY_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Nodes,
    pub(crate) network: Network,
    pub(crate) audit: Audit,
    addresses: Addresses,
    dir: TempDir,
}

impl Cluster {
    pub(crate) async fn start(holdfast: &Path) -> Checked<Cluster> {
        let dir = tempfile::Builder::new().prefix("holdfast-conformance-").tempdir()?;
        let addresses = Addresses::choose(NODES)?;
        let network = Network::between(&addresses.peer, &addresses.client).await?;
        let file = |node: &str| dir.path().join(format!("audit-{node}.jsonl"));
        let settings = format!("[audit]\nfile = {:?}", file("{node}"));
        let plan = Plan {
            cluster: "conformance",
            addresses: &addresses,
            network: Some(&network),
            settings: &settings,
        };
        let clocks = WallClocks::untouched(dir.path());
        let mut nodes = Nodes::prepare(holdfast, dir.path(), clocks, &plan)?;
        for node in 1..=NODES {
            nodes.start(node)?;
        }
        let files: Vec<PathBuf> = (1..=NODES).map(|node| file(&node.to_string())).collect();
        let cluster = Cluster { nodes, network, audit: Audit { files }, addresses, dir };
        cluster.leader().await?;
        Ok(cluster)
    }

    /// Over the wires.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.network.client_addresses().into_values().collect()
    }

    /// Past the wires.
    pub(crate) fn direct(&self) -> String {
        let all: Vec<&str> = self.addresses.client.values().map(String::as_str).collect();
        all.join(",")
    }

    pub(crate) fn calls(&self) -> Checked<Unary> {
        Unary::new(&self.direct()).map_err(broken)
    }

    /// A client of the suite's own, which the faults of the wires do not touch.
    pub(crate) async fn rival(&self) -> Checked<Client> {
        let builder = Client::builder().ttl(Duration::from_secs(30)).without_discovery();
        builder.connect(&self.direct()).await.map_err(broken)
    }

    /// Waits until there is one.
    pub(crate) async fn leader(&self) -> Checked<u64> {
        let give_up = Instant::now() + READY_PATIENCE;
        loop {
            if let Ok(status) = self.calls()?.cluster_status().await
                && let Some(group) = status.groups.first()
                && group.leader != 0
            {
                return Ok(group.leader);
            }
            if Instant::now() > give_up {
                let logs = self.dir.path().display();
                return Err(Finding::Broken(format!("no leader; the logs are in {logs}")));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
