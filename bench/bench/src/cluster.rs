//! Nodes of a cluster, each a process of its own, in a temporary directory.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_client::unary::Unary;
use holdfast_cluster_kit::{Addresses, Nodes, Plan, WallClocks};
use holdfast_proto::SessionId;
use holdfast_proto::v1::{AcquireRequest, ClusterStatusResponse, GroupStatus, Owner};
use tempfile::TempDir;

use crate::cpu::{Servers, resident_bytes};
use crate::{Outcome, PREFIX};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);
/// Of the session by which a cluster is asked whether it serves.
const VISIT: Duration = Duration::from_secs(1);

/// Its processes end and its files go when it is dropped, and the processes also if we are killed.
#[derive(Debug)]
pub struct Cluster {
    nodes: Nodes,
    addresses: Addresses,
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
        Cluster::start_at(binary, Addresses::choose(nodes), settings).await
    }

    /// Three nodes that people look at: with an HTTP port and an audit file each.
    pub async fn start_observed(binary: &Path) -> Outcome<Cluster> {
        let settings = "[audit]\nfile = \"{directory}/audit-{node}.jsonl\"";
        Cluster::start_at(binary, Addresses::choose_with_http(3), settings).await
    }

    async fn start_at(binary: &Path, addresses: Addresses, settings: &str) -> Outcome<Cluster> {
        let directory = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
        let settings = &settings.replace("{directory}", &directory.path().display().to_string());
        let plan = plan(&addresses, settings);
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
        let mut cluster =
            Cluster { nodes, addresses, calls, endpoints, http, _directory: directory };
        cluster.serving().await?;
        Ok(cluster)
    }

    /// `kill -9` of all nodes at one moment, and all are started again with these settings. Returns how long it took
    /// from there until the cluster served.
    pub async fn restart(&mut self, settings: &str) -> Outcome<Duration> {
        let all: Vec<u64> = self.addresses.client.keys().copied().collect();
        self.nodes.kill(&all)?;
        self.nodes.configure(&plan(&self.addresses, settings))?;
        let began = Instant::now();
        for node in all {
            self.nodes.start(node)?;
        }
        self.serving().await?;
        Ok(began.elapsed())
    }

    /// Waits until a client can take a lock.
    pub async fn serving(&mut self) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.visit().await {
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

    /// A session that asks for a lock and goes.
    async fn visit(&self) -> Outcome {
        let session = SessionId::random().map_err(|error| error.to_string())?;
        let name = format!("{PREFIX}visit");
        let wanted = AcquireRequest { request_id: 1, name, ..Default::default() };
        self.calls.open_session(session, VISIT, None, Owner::default()).await?;
        // If one before broke off and has it still, that is an answer too.
        self.calls.acquire(session, wanted).await?;
        self.calls.close_session(session, 2).await?;
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
        let (view, group) = led(calls).await?;
        let node = view.nodes.iter().find(|node| node.id == group.leader);
        Ok(node.ok_or("the leader is no member")?.client_address.clone())
    }

    /// The number of the node that leads.
    pub async fn leader(&self) -> Outcome<u64> {
        Ok(led(&self.calls).await?.1.leader)
    }

    /// It rises with each election.
    pub async fn term(&self) -> Outcome<u64> {
        Ok(led(&self.calls).await?.1.term)
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
        let (_, group) = led(&self.calls).await?;
        let replica = group.replicas.iter().find(|replica| replica.node == node);
        Ok(replica.map_or(u64::MAX, |replica| replica.lag))
    }

    /// Up to where in the log a node is known to have it.
    pub async fn matched(&self, node: u64) -> Outcome<u64> {
        let (_, group) = led(&self.calls).await?;
        let replica = group.replicas.iter().find(|replica| replica.node == node);
        Ok(replica.ok_or("the leader does not know the node")?.matched_index)
    }

    /// Up to where in the log the last snapshot on a node's disk goes.
    pub fn last_snapshot(&self, node: u64) -> Outcome<u64> {
        Ok(self.nodes.last_snapshot(node)?)
    }

    /// How many snapshots of a leader were installed by the nodes that run.
    pub fn snapshot_installs(&self) -> Outcome<u64> {
        Ok(self.nodes.snapshot_installs()?)
    }

    /// What each node has in memory, in bytes.
    pub fn resident_bytes(&self) -> Outcome<Vec<u64>> {
        self.nodes.pids().map(|(_, pid)| resident_bytes(pid)).collect()
    }
}

fn plan<'a>(addresses: &'a Addresses, settings: &'a str) -> Plan<'a> {
    Plan { cluster: "bench", addresses, network: None, settings }
}

/// What the cluster says of itself, and of its group, once it has a leader.
async fn led(calls: &Unary) -> Outcome<(ClusterStatusResponse, GroupStatus)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = match calls.cluster_status().await {
            Ok(view) => match view.groups.first().filter(|group| group.leader != 0).cloned() {
                Some(group) => return Ok((view, group)),
                None => "there is no leader".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        if Instant::now() > deadline {
            return Err(error.into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
