//! A cluster of `holdfast server` processes, each with its own data directory.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use holdfast_cluster_kit::free_ports;
use holdfast_proto::v1::{ClusterStatusResponse, GroupStatus};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::cluster_slots::{ClusterSlot, all_cluster_slots, cluster_slot};
use super::{PlainClient, eventually};

/// The binary under test.
pub(crate) fn holdfast() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    for variable in ["ENDPOINTS", "CA", "CERT", "KEY", "VERIFY", "CONTEXT", "CONFIG", "AUTH_FILE"] {
        command.env_remove(format!("HOLDFAST_{variable}"));
    }
    command.stdin(Stdio::null());
    command
}

#[derive(Clone, Debug)]
pub(crate) struct ClusterOptions {
    pub(crate) nodes: u64,
    /// More lines of the configuration file; `{node}` stands for the node's id.
    pub(crate) settings: String,
}

pub(crate) struct Cluster {
    nodes: Vec<Node>,
    dir: TempDir,
    _slot: ClusterSlot,
}

struct Node {
    id: u64,
    client_port: u16,
    peer_port: u16,
    http_port: u16,
    config: PathBuf,
    process: Option<Child>,
}

/// A machine that runs tests side by side stalls for more than half a second at times. With an election timeout of 1 s
/// there are elections when a test causes them.
const PATIENT: &str = "election_ticks = 20";

impl Cluster {
    /// Starts a cluster and waits until it has a leader.
    pub(crate) async fn start(nodes: u64) -> Cluster {
        Cluster::start_with(ClusterOptions { nodes, settings: String::new() }).await
    }

    pub(crate) async fn start_with(options: ClusterOptions) -> Cluster {
        let settings = match options.settings.contains("election_ticks") || options.nodes == 1 {
            true => options.settings,
            false => format!("{PATIENT}\n{}", options.settings),
        };
        Cluster::start_at(cluster_slot().await, ClusterOptions { settings, ..options }).await
    }

    /// As `start`, while no other cluster runs: for tests that measure, or that are a heavy load themselves.
    pub(crate) async fn start_alone(nodes: u64) -> Cluster {
        let options = ClusterOptions { nodes, settings: String::new() };
        Cluster::start_at(all_cluster_slots().await, options).await
    }

    /// As `start`, for nodes that tell nothing to a caller without a token.
    pub(crate) async fn start_demanding(nodes: u64) -> Cluster {
        let settings = format!("{PATIENT}\nauth.mode = \"required\"");
        let options = ClusterOptions { nodes, settings };
        let cluster = Cluster::launch_at(cluster_slot().await, options);
        for id in cluster.ids() {
            cluster.ready(id).await;
        }
        cluster
    }

    /// Nodes with so many Raft groups; waits until all of them serve.
    pub(crate) async fn start_divided(nodes: u64, groups: u32) -> Cluster {
        let options = ClusterOptions { nodes, settings: PATIENT.to_owned() };
        Cluster::start_divided_with(groups, options).await
    }

    /// The same for nodes with more settings.
    pub(crate) async fn start_divided_with(groups: u32, options: ClusterOptions) -> Cluster {
        // Before the tables of the settings.
        let settings = format!("groups = {groups}\n{}", options.settings);
        let options = ClusterOptions { settings, ..options };
        let cluster = Cluster::launch_at(cluster_slot().await, options);
        for id in cluster.ids() {
            cluster.ready(id).await;
        }
        cluster
    }

    /// Nodes whose ports speak TLS; waits until all of them serve. `{node}` stands for the node's id.
    pub(crate) async fn start_tls(nodes: u64, settings: &str) -> Cluster {
        let options = ClusterOptions { nodes, settings: format!("{PATIENT}\n{settings}") };
        let cluster = Cluster::launch_at(cluster_slot().await, options);
        cluster.serve().await;
        cluster
    }

    /// Nodes with these configurations, which may need the addresses of the nodes; waits until all of them serve.
    pub(crate) async fn start_configured(
        nodes: u64,
        configuration: impl Fn(&Cluster, u64) -> String,
    ) -> Cluster {
        let options = ClusterOptions { nodes, settings: String::new() };
        let mut cluster = Cluster::prepare_at(cluster_slot().await, options);
        for id in cluster.ids() {
            cluster.configure(id, &configuration(&cluster, id));
            cluster.launch(id);
        }
        cluster.serve().await;
        cluster
    }

    /// Waits until all nodes serve, as their logs say: their ports may speak TLS.
    async fn serve(&self) {
        for id in self.ids() {
            eventually("the node serves", Duration::from_secs(20), || {
                let log = self.log_of(id);
                std::future::ready(log.contains("serving clients on").then_some(()))
            })
            .await;
        }
    }

    /// Waits until the node is ready, as its probe says.
    pub(crate) async fn ready(&self, id: u64) {
        let address = self.http_address(id);
        eventually("the node is ready", Duration::from_secs(20), || is_ready(&address)).await;
    }

    async fn start_at(slot: ClusterSlot, options: ClusterOptions) -> Cluster {
        let cluster = Cluster::launch_at(slot, options);
        cluster.leader().await;
        cluster
    }

    fn launch_at(slot: ClusterSlot, options: ClusterOptions) -> Cluster {
        let mut cluster = Cluster::prepare_at(slot, options);
        for id in cluster.ids() {
            cluster.launch(id);
        }
        cluster
    }

    /// The nodes are configured, and do not run.
    fn prepare_at(slot: ClusterSlot, options: ClusterOptions) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let ports = free_ports(3 * options.nodes as usize);
        let mut nodes = Vec::new();
        let mut members = String::new();
        for id in 1..=options.nodes {
            let at = 3 * (id as usize - 1);
            let (client_port, peer_port, http_port) = (ports[at], ports[at + 1], ports[at + 2]);
            members += &format!(
                "[[nodes]]\nid = {id}\nclient = \"127.0.0.1:{client_port}\"\npeer = \"127.0.0.1:{peer_port}\"\nhttp = \"127.0.0.1:{http_port}\"\n"
            );
            let config = dir.path().join(format!("node-{id}.toml"));
            nodes.push(Node { id, client_port, peer_port, http_port, config, process: None });
        }
        for node in &nodes {
            let data_dir = dir.path().join(format!("data-{}", node.id));
            let text = format!(
                "cluster = \"test\"\nnode = {}\ndata_dir = {data_dir:?}\n{}\n{members}",
                node.id,
                options.settings.replace("{node}", &node.id.to_string())
            );
            std::fs::write(&node.config, text).unwrap();
        }
        Cluster { nodes, dir, _slot: slot }
    }

    /// Takes addresses for a node that is yet to be added.
    pub(crate) fn prepare(&mut self, id: u64) {
        let ports = free_ports(3);
        let config = self.dir.path().join(format!("node-{id}.toml"));
        let (client_port, peer_port, http_port) = (ports[0], ports[1], ports[2]);
        self.nodes.push(Node { id, client_port, peer_port, http_port, config, process: None });
    }

    pub(crate) fn data_dir(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("data-{id}"))
    }

    /// The file with the node's configuration.
    pub(crate) fn config_path(&self, id: u64) -> String {
        self.node(id).config.to_str().unwrap().to_owned()
    }

    /// Waits until the node's process has ended by itself, and says how. It may be launched again.
    pub(crate) async fn ended_code(&mut self, id: u64) -> Option<i32> {
        let mut process = self.node_mut(id).process.take().unwrap();
        let status = eventually("the node stops by itself", Duration::from_secs(20), || {
            std::future::ready(process.try_wait().unwrap())
        });
        status.await.code()
    }

    /// Writes the node's configuration.
    pub(crate) fn configure(&self, id: u64, text: &str) {
        std::fs::write(&self.node(id).config, text).unwrap();
    }

    /// Gives the node other addresses, in its own file alone.
    pub(crate) fn relocate(&mut self, id: u64) {
        let ports = free_ports(3);
        let node = self.node_mut(id);
        let mut text = std::fs::read_to_string(&node.config).unwrap();
        for (old, new) in [(&mut node.client_port, ports[0]), (&mut node.peer_port, ports[1])] {
            text = text.replace(&format!("127.0.0.1:{old}"), &format!("127.0.0.1:{new}"));
            *old = new;
        }
        std::fs::write(&node.config, text).unwrap();
    }

    /// Waits until the node's process has ended by itself. It is no part of the cluster from then on.
    pub(crate) async fn ends(&mut self, id: u64) -> ExitStatus {
        let mut process = self.node_mut(id).process.take().unwrap();
        let status = eventually("the node stops by itself", Duration::from_secs(20), || {
            std::future::ready(process.try_wait().unwrap())
        })
        .await;
        self.nodes.retain(|node| node.id != id);
        status
    }

    /// A node that does not run, and is no part of the cluster any more.
    pub(crate) fn forget(&mut self, id: u64) {
        assert!(self.node(id).process.is_none(), "node {id} runs");
        self.nodes.retain(|node| node.id != id);
    }

    /// Starts one node's process on the data that it has.
    pub(crate) fn launch(&mut self, id: u64) {
        self.launch_as(id, holdfast());
    }

    /// The same for a process that may have so many open files: at first, and at most.
    pub(crate) fn launch_with_descriptors(&mut self, id: u64, soft: u64, hard: u64) {
        let mut shell = Command::new("sh");
        let limits = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$@\"");
        shell.args(["-c", &limits, "sh", env!("CARGO_BIN_EXE_holdfast")]).stdin(Stdio::null());
        self.launch_as(id, shell);
    }

    /// The same for a process whose files can be limited by [`Cluster::limit_files`]: a write past the limit fails, and
    /// does not end the process.
    pub(crate) fn launch_with_limitable_files(&mut self, id: u64) {
        let mut shell = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_holdfast");
        shell.args(["-c", "trap '' XFSZ && exec \"$@\"", "sh", program]).stdin(Stdio::null());
        self.launch_as(id, shell);
    }

    /// No file of the node grows past this, as on a full disk.
    pub(crate) fn limit_files(&self, id: u64, bytes: Option<u64>) {
        let process = Some(Pid::from_child(self.node(id).process.as_ref().unwrap()));
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(process, Resource::Fsize, limit).unwrap();
    }

    fn launch_as(&mut self, id: u64, mut program: Command) {
        let log = self.log_path(id);
        let log = File::options().create(true).append(true).open(log).unwrap();
        let node = self.node_mut(id);
        assert!(node.process.is_none(), "node {id} runs already");
        let process = program
            .args(["server", "--config"])
            .arg(&node.config)
            .env("HOLDFAST_LOG", "info")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        node.process = Some(process);
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, id: u64) {
        let mut process = self.node_mut(id).process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// SIGTERM, and waits until the process has ended.
    pub(crate) async fn terminate(&mut self, id: u64) {
        self.signal(id, Signal::TERM);
        let mut process = self.node_mut(id).process.take().unwrap();
        let status = tokio::task::spawn_blocking(move || process.wait()).await.unwrap().unwrap();
        assert!(status.success(), "node {id} ended with {status}");
    }

    /// SIGSTOP: the process stands still and knows nothing of it.
    pub(crate) fn freeze(&self, id: u64) {
        self.signal(id, Signal::STOP);
    }

    pub(crate) fn thaw(&self, id: u64) {
        self.signal(id, Signal::CONT);
    }

    pub(crate) fn send(&self, id: u64, signal: Signal) {
        self.signal(id, signal);
    }

    fn signal(&self, id: u64, signal: Signal) {
        let process = self.node(id).process.as_ref().unwrap();
        kill_process(Pid::from_child(process), signal).unwrap();
    }

    /// Removes all that the node has on disk.
    pub(crate) fn wipe(&self, id: u64) {
        std::fs::remove_dir_all(self.data_dir(id)).unwrap();
    }

    /// What the node has logged so far.
    pub(crate) fn log_of(&self, id: u64) -> String {
        std::fs::read_to_string(self.log_path(id)).unwrap_or_default()
    }

    fn log_path(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("node-{id}.log"))
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    pub(crate) fn running(&self) -> Vec<u64> {
        self.nodes.iter().filter(|node| node.process.is_some()).map(|node| node.id).collect()
    }

    pub(crate) fn client_address(&self, id: u64) -> String {
        format!("127.0.0.1:{}", self.node(id).client_port)
    }

    pub(crate) fn peer_address(&self, id: u64) -> String {
        format!("127.0.0.1:{}", self.node(id).peer_port)
    }

    pub(crate) fn http_address(&self, id: u64) -> String {
        format!("127.0.0.1:{}", self.node(id).http_port)
    }

    /// All client addresses, as the command line takes them.
    pub(crate) fn endpoints(&self) -> String {
        self.ids().iter().map(|id| self.client_address(*id)).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn client(&self) -> PlainClient {
        PlainClient::new(self.ids().iter().map(|id| self.client_address(*id)).collect())
    }

    /// The client library, with a session of its own.
    /// A client that begins at the leader if a running node names one. At another node it would move to the leader
    /// after a while, and a loss during the move is reported without its reason.
    pub(crate) async fn library(&self) -> holdfast_client::Client {
        let mut endpoints = self.endpoints();
        for id in self.running() {
            let view = self.view_of(id).await.filter(|view| self.running().contains(&view.leader));
            if let Some(view) = view {
                endpoints = format!("{},{endpoints}", self.client_address(view.leader));
                break;
            }
        }
        holdfast_client::Client::connect(&endpoints).await.unwrap()
    }

    pub(crate) fn client_of(&self, id: u64) -> PlainClient {
        PlainClient::new(vec![self.client_address(id)])
    }

    /// The node's own view of its only group, without asking another node.
    pub(crate) async fn view_of(&self, id: u64) -> Option<GroupStatus> {
        let status: ClusterStatusResponse = self.client_of(id).own_view().await?;
        status.groups.into_iter().next()
    }

    /// The leader that a majority of the running nodes agree upon.
    pub(crate) async fn leader(&self) -> u64 {
        eventually("the nodes agree on a leader", Duration::from_secs(15), || async {
            let mut votes = Vec::new();
            for id in self.running() {
                if let Some(view) = self.view_of(id).await.filter(|view| view.leader != 0) {
                    votes.push(view.leader);
                }
            }
            let majority = self.nodes.len() / 2 + 1;
            let running = self.running();
            votes.iter().copied().find(|leader| {
                running.contains(leader)
                    && votes.iter().filter(|vote| *vote == leader).count() >= majority
            })
        })
        .await
    }

    /// A running node that does not lead.
    pub(crate) async fn follower(&self) -> u64 {
        let leader = self.leader().await;
        self.running().into_iter().find(|id| *id != leader).unwrap()
    }

    /// All running nodes have applied the same, byte for byte.
    pub(crate) async fn converged(&self) {
        eventually("all replicas are byte-identical", Duration::from_secs(20), || async {
            let mut digests = Vec::new();
            for id in self.running() {
                let view = self.view_of(id).await?;
                digests.push((view.applied_index, view.digest));
            }
            digests.windows(2).all(|pair| pair[0] == pair[1]).then_some(())
        })
        .await;
    }

    /// The same for each group of a cluster with several.
    pub(crate) async fn converged_in_all_groups(&self) {
        eventually("all replicas of all groups are identical", Duration::from_secs(20), || async {
            let mut digests = Vec::new();
            for id in self.running() {
                let groups = self.client_of(id).own_view().await?.groups.into_iter();
                let state = |view: GroupStatus| (view.group, view.applied_index, view.digest);
                digests.push(groups.map(state).collect::<Vec<_>>());
            }
            digests.windows(2).all(|pair| pair[0] == pair[1]).then_some(())
        })
        .await;
    }

    fn node(&self, id: u64) -> &Node {
        self.nodes.iter().find(|node| node.id == id).unwrap()
    }

    fn node_mut(&mut self, id: u64) -> &mut Node {
        self.nodes.iter_mut().find(|node| node.id == id).unwrap()
    }
}

async fn is_ready(address: &str) -> Option<()> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(())
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(mut process) = node.process.take() {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
        if std::thread::panicking() {
            for node in &self.nodes {
                let log = self.log_of(node.id);
                let tail: Vec<_> = log.lines().rev().take(25).collect();
                println!("---- the last lines of node {}", node.id);
                for line in tail.into_iter().rev() {
                    println!("{line}");
                }
            }
        }
    }
}
