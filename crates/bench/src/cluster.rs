//! Nodes of a cluster, each a process of its own, in a temporary directory.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_client::unary::Unary;
use holdfast_cluster_kit::{Addresses, Nodes, Plan, WallClocks};
use tempfile::TempDir;

use crate::cpu::{Servers, resident_bytes};
use crate::{Outcome, PREFIX};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Its processes end and its files go when it is dropped, and the processes also if we are killed.
#[derive(Debug)]
pub struct Cluster {
    nodes: Nodes,
    calls: Unary,
    pub endpoints: String,
    /// Where the nodes show themselves, if they do.
    pub http: Vec<String>,
    /// Goes last.
    _directory: TempDir,
}

impl Cluster {
    /// So many nodes of this `holdfast` program, with more lines for their configuration. Returns when they serve.
    pub async fn start(binary: &Path, nodes: u64, settings: &str) -> Outcome<Cluster> {
        Cluster::start_at(binary, Addresses::choose(nodes)?, settings).await
    }

    /// Three nodes that people look at: with an HTTP port and an audit file each.
    pub async fn start_observed(binary: &Path) -> Outcome<Cluster> {
        let settings = "[audit]\nfile = \"{directory}/audit-{node}.jsonl\"";
        Cluster::start_at(binary, Addresses::choose_with_http(3)?, settings).await
    }

    async fn start_at(binary: &Path, addresses: Addresses, settings: &str) -> Outcome<Cluster> {
        let directory = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
        let settings = &settings.replace("{directory}", &directory.path().display().to_string());
        let plan = Plan { cluster: "bench", addresses: &addresses, network: None, settings };
        let clocks = WallClocks::untouched(directory.path());
        // A step in between asks to be killed with us.
        let parent: OsString = std::process::id().to_string().into();
        let launcher = [binary.into(), "exec-child".into(), "--parent".into(), parent, "--".into()];
        let mut nodes =
            Nodes::prepare(binary, directory.path(), clocks, &plan)?.launched_by(launcher);
        for node in addresses.client.keys() {
            nodes.start(*node)?;
        }
        let endpoints = addresses.client.values().cloned().collect::<Vec<_>>().join(",");
        let http = addresses.http.values().cloned().collect();
        let calls = Unary::new(&endpoints)?;
        let mut cluster = Cluster { nodes, calls, endpoints, http, _directory: directory };
        cluster.serving().await?;
        Ok(cluster)
    }

    /// Waits until the cluster answers.
    pub async fn serving(&mut self) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.calls.list(PREFIX).await {
            if let Some((node, how)) = self.nodes.take_dead().first() {
                return Err(format!("node {node} ended by itself: {how}").into());
            }
            if Instant::now() > deadline {
                return Err(format!("the cluster does not serve: {error}").into());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    pub fn calls(&self) -> &Unary {
        &self.calls
    }

    pub fn servers(&self) -> Servers {
        Servers(self.nodes.pids().map(|(_, pid)| pid).collect())
    }

    /// The client address of the node that leads.
    pub async fn leader_of(calls: &Unary) -> Outcome<String> {
        let view = calls.cluster_status().await?;
        let leader = view.groups.first().map_or(0, |group| group.leader);
        let node = view.nodes.iter().find(|node| node.id == leader);
        Ok(node.ok_or("there is no leader")?.client_address.clone())
    }

    /// The number of the node that leads.
    pub async fn leader(&self) -> Outcome<u64> {
        let view = self.calls.cluster_status().await?;
        let leader = view.groups.first().map_or(0, |group| group.leader);
        if leader == 0 { Err("there is no leader".into()) } else { Ok(leader) }
    }

    /// The number of a node that does not lead.
    pub async fn follower(&self) -> Outcome<u64> {
        let leader = self.leader().await?;
        let follower = self.nodes.pids().map(|(node, _)| node).find(|node| *node != leader);
        Ok(follower.ok_or("there is but one node")?)
    }

    pub fn kill(&mut self, node: u64) -> Outcome {
        Ok(self.nodes.kill(&[node])?)
    }

    pub fn start_again(&mut self, node: u64) -> Outcome {
        Ok(self.nodes.start(node)?)
    }

    /// How many entries of the log a node lacks, as the leader sees it.
    pub async fn lag(&self, node: u64) -> Outcome<u64> {
        let view = self.calls.cluster_status().await?;
        let group = view.groups.first().ok_or("there is no group")?;
        let replica = group.replicas.iter().find(|replica| replica.node == node);
        Ok(replica.map_or(u64::MAX, |replica| replica.lag))
    }

    /// What each node has in memory, in bytes.
    pub fn resident_bytes(&self) -> Outcome<Vec<u64>> {
        self.nodes.pids().map(|(_, pid)| resident_bytes(pid)).collect()
    }
}
