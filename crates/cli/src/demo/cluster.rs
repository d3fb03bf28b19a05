//! Three nodes of this very program, in a temporary directory.

use std::time::{Duration, Instant};

use holdfast_client::unary::Unary;
use holdfast_cluster_kit::{Addresses, Nodes, Plan, WallClocks};
use tempfile::TempDir;

use super::broke;
use crate::exit::Problem;

const NODES: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Its processes end and its files go when it is dropped, and the processes also if we are killed.
#[derive(Debug)]
pub(super) struct DemoCluster {
    nodes: Nodes,
    calls: Unary,
    endpoints: String,
    /// Goes last.
    _dir: TempDir,
}

impl DemoCluster {
    /// Returns when it serves.
    pub(super) async fn start() -> Result<DemoCluster, Problem> {
        let dir = tempfile::Builder::new().prefix("holdfast-demo-").tempdir().map_err(broke)?;
        let addresses = Addresses::choose(NODES);
        let program = std::env::current_exe().map_err(broke)?;
        let plan = Plan { cluster: "demo", addresses: &addresses, network: None, settings: "" };
        let clocks = WallClocks::untouched(dir.path());
        let nodes = Nodes::prepare(&program, dir.path(), clocks, &plan).map_err(broke)?;
        // A step in between asks to be killed with us.
        let parent = std::process::id().to_string();
        let launcher = [program.into(), "exec-child".into(), "--parent".into(), parent.into()];
        let nodes = nodes.launched_by(launcher.into_iter().chain(["--".into()]));
        let endpoints = addresses.client.values().cloned().collect::<Vec<_>>().join(",");
        let calls = Unary::new(&endpoints)?;
        let mut cluster = DemoCluster { nodes, calls, endpoints, _dir: dir };
        for node in addresses.client.keys() {
            cluster.nodes.start(*node).map_err(broke)?;
        }
        cluster.leader(None).await?;
        Ok(cluster)
    }

    pub(super) fn endpoints(&self) -> &str {
        &self.endpoints
    }

    /// The node that leads, once it is another than this one.
    pub(super) async fn leader(&self, not: Option<u64>) -> Result<u64, Problem> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Ok(view) = self.calls.cluster_status().await {
                let leader = view.groups.first().map_or(0, |group| group.leader);
                if leader != 0 && Some(leader) != not {
                    return Ok(leader);
                }
            }
            if Instant::now() > give_up {
                return Err(broke(format!("its nodes have no leader after {PATIENCE:?}")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(super) fn kill(&mut self, node: u64) -> Result<(), Problem> {
        self.nodes.kill(&[node]).map_err(broke)
    }

    /// Ends them in good order.
    pub(super) async fn stop(mut self) -> Result<(), Problem> {
        for node in 1..=NODES {
            self.nodes.terminate(node).await.map_err(broke)?;
        }
        Ok(())
    }
}
