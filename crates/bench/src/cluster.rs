//! Three nodes, each a process of its own, in a temporary directory.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_client::unary::Unary;
use tempfile::TempDir;

use crate::Outcome;

const NODES: usize = 3;
const START_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Cluster {
    binary: PathBuf,
    nodes: Vec<Child>,
    pub(crate) endpoints: String,
    /// Goes with the cluster.
    directory: TempDir,
}

impl Cluster {
    pub(crate) async fn start(binary: &Path, settings: &str) -> Outcome<Cluster> {
        let directory = tempfile::tempdir()?;
        let held: Vec<TcpListener> =
            (0..2 * NODES).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
        let ports: Vec<u16> = held
            .iter()
            .map(|listener| listener.local_addr().map(|address| address.port()))
            .collect::<Result<_, _>>()?;
        drop(held);
        let members: String = (0..NODES)
            .map(|node| {
                let (client, peer) = (ports[2 * node], ports[2 * node + 1]);
                format!(
                    "[[nodes]]\nid = {}\nclient = \"127.0.0.1:{client}\"\npeer = \"127.0.0.1:{peer}\"\n",
                    node + 1
                )
            })
            .collect();
        let mut nodes = Vec::new();
        for node in 1..=NODES {
            let data_dir = directory.path().join(format!("node-{node}"));
            let file = config_file(&directory, node);
            let config = format!(
                "cluster = \"bench\"\nnode = {node}\ndata_dir = {:?}\n{settings}\n{members}",
                data_dir.display().to_string()
            );
            fs::write(&file, config)?;
            nodes.push(spawn(binary, &directory, node)?);
        }
        let addresses: Vec<String> =
            (0..NODES).map(|node| format!("127.0.0.1:{}", ports[2 * node])).collect();
        let (binary, endpoints) = (binary.to_owned(), addresses.join(","));
        let cluster = Cluster { binary, nodes, endpoints, directory };
        let deadline = Instant::now() + START_PATIENCE;
        while cluster.calls()?.list("").await.is_err() {
            if Instant::now() > deadline {
                return Err("the cluster did not start; see its logs".into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(cluster)
    }

    pub(crate) fn calls(&self) -> Outcome<Unary> {
        Ok(Unary::new(&self.endpoints)?)
    }

    /// The client address of the node that leads.
    pub(crate) async fn leader(&self) -> Outcome<String> {
        let view = self.calls()?.cluster_status().await?;
        let leader = view.groups.first().map_or(0, |group| group.leader);
        let node = view.nodes.iter().find(|node| node.id == leader);
        Ok(node.ok_or("there is no leader")?.client_address.clone())
    }

    /// The number of a node that does not lead.
    pub(crate) async fn follower(&self) -> Outcome<usize> {
        let view = self.calls()?.cluster_status().await?;
        let leader = view.groups.first().map_or(0, |group| group.leader);
        Ok(if leader == NODES as u64 { 1 } else { NODES })
    }

    pub(crate) fn stop(&mut self, node: usize) -> Outcome {
        let node = &mut self.nodes[node - 1];
        node.kill()?;
        node.wait()?;
        Ok(())
    }

    pub(crate) fn start_again(&mut self, node: usize) -> Outcome {
        self.nodes[node - 1] = spawn(&self.binary, &self.directory, node)?;
        Ok(())
    }

    /// How many entries of the log a node lacks, as the leader sees it.
    pub(crate) async fn lag(&self, node: usize) -> Outcome<u64> {
        let view = self.calls()?.cluster_status().await?;
        let group = view.groups.first().ok_or("there is no group")?;
        let replica = group.replicas.iter().find(|replica| replica.node == node as u64);
        Ok(replica.map_or(u64::MAX, |replica| replica.lag))
    }

    /// What each node has in memory, in bytes.
    pub(crate) fn resident_bytes(&self) -> Outcome<Vec<u64>> {
        self.nodes.iter().map(|node| resident_bytes(node.id())).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // It may have ended by itself; what is left of it goes with the directory.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn config_file(directory: &TempDir, node: usize) -> PathBuf {
    directory.path().join(format!("node-{node}.toml"))
}

fn spawn(binary: &Path, directory: &TempDir, node: usize) -> Outcome<Child> {
    let log = directory.path().join(format!("node-{node}.log"));
    let log = fs::OpenOptions::new().create(true).append(true).open(log)?;
    let node = Command::new(binary)
        .args(["server", "--config"])
        .arg(config_file(directory, node))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    Ok(node)
}

fn resident_bytes(pid: u32) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 =
        line.and_then(|line| line.trim().strip_suffix("kB")).ok_or("no VmRSS")?.trim().parse()?;
    Ok(kib * 1_024)
}
