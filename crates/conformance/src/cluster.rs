//! The clusters that are played on: real nodes. The driver reaches most of them over wires that can be cut; the suite's
//! own clients reach them directly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_client::unary::Unary;
use holdfast_client::{Client, Tls};
use holdfast_cluster_kit::{Addresses, Network, Nodes, Plan, WallClocks};
use tempfile::TempDir;

use crate::audit::Audit;
use crate::command::Command;
use crate::finding::{Checked, Finding, broken};

const NODES: u64 = 3;
/// Of which addresses are kept, for a node that joins.
const NODES_MAX: u64 = 4;
/// Of a cluster whose locks are divided.
pub(crate) const GROUPS: u32 = 4;
const READY_PATIENCE: Duration = Duration::from_secs(60);

/// The kinds of cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ground {
    /// Three nodes behind wires.
    Plain,
    /// The same with TLS on all ports, and callers must prove who they are.
    Secure,
    /// Three nodes without wires. Others can join them, and each such cluster is used once.
    Growing,
    /// Three nodes behind wires, whose locks are divided over [`GROUPS`] Raft groups.
    Divided,
}

/// Those that were started.
#[derive(Debug)]
pub(crate) struct Clusters {
    holdfast: PathBuf,
    started: BTreeMap<Ground, Cluster>,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Nodes,
    pub(crate) network: Network,
    pub(crate) audit: Audit,
    addresses: Addresses,
    /// Of a node that is not started yet: client port and peer port.
    spare: (String, String),
    ground: Ground,
    holdfast: PathBuf,
    dir: TempDir,
}

impl Clusters {
    pub(crate) fn new(holdfast: &Path) -> Clusters {
        Clusters { holdfast: holdfast.to_owned(), started: BTreeMap::new() }
    }

    /// Starts it if there is none.
    pub(crate) async fn of(&mut self, ground: Ground) -> Checked<&mut Cluster> {
        if ground == Ground::Growing || !self.started.contains_key(&ground) {
            self.started.insert(ground, Cluster::start(&self.holdfast, ground).await?);
        }
        self.started.get_mut(&ground).ok_or_else(|| broken("the cluster is gone"))
    }
}

impl Cluster {
    pub(crate) async fn start(holdfast: &Path, ground: Ground) -> Checked<Cluster> {
        let dir = tempfile::Builder::new().prefix("holdfast-conformance-").tempdir()?;
        let mut addresses = Addresses::choose(NODES_MAX)?;
        let spare = (addresses.client.remove(&NODES_MAX), addresses.peer.remove(&NODES_MAX));
        let spare = (spare.0.unwrap_or_default(), spare.1.unwrap_or_default());
        let none = BTreeMap::new();
        let (network, is_wired) = match ground {
            Ground::Growing => (Network::between(&none, &none).await?, false),
            _ => (Network::between(&addresses.peer, &addresses.client).await?, true),
        };
        let file = |node: &str| dir.path().join(format!("audit-{node}.jsonl"));
        let mut settings = audit_settings(&file("{node}"));
        if ground == Ground::Secure {
            make_certificates(holdfast, dir.path()).await?;
            settings += &secure_settings(dir.path());
        }
        let plan = Plan {
            cluster: "conformance",
            addresses: &addresses,
            network: is_wired.then_some(&network),
            settings: &settings,
        };
        let clocks = WallClocks::untouched(dir.path());
        let mut nodes = Nodes::prepare(holdfast, dir.path(), clocks, &plan)?;
        for node in 1..=NODES {
            if ground == Ground::Divided {
                divide(&nodes.data_dir(node), node)?;
            }
            nodes.start(node)?;
        }
        let files = (1..=NODES_MAX).map(|node| file(&node.to_string())).collect();
        let (audit, holdfast) = (Audit { files }, holdfast.to_owned());
        let cluster = Cluster { nodes, network, audit, addresses, spare, ground, holdfast, dir };
        if ground == Ground::Secure {
            cluster.make_administrator().await?;
        }
        for group in 1..=cluster.groups() {
            cluster.leader_in(group).await?;
        }
        Ok(cluster)
    }

    /// How many Raft groups it has.
    fn groups(&self) -> u32 {
        if self.ground == Ground::Divided { GROUPS } else { 1 }
    }

    /// With the token that a node writes when it starts.
    async fn make_administrator(&self) -> Checked {
        let give_up = Instant::now() + READY_PATIENCE;
        while !self.nodes.data_dir(1).join("bootstrap").exists() {
            if Instant::now() > give_up {
                return Err(broken("the first node wrote no token for its administrator"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let [config, to] = [self.nodes.config_path(1), self.file("admin.token")];
        let [config, to] = [config.display().to_string(), to.display().to_string()];
        let bootstrap = ["access", "bootstrap", "--config", &config, "--to", &to];
        Command::new(&self.holdfast).ca(self.ca().as_deref()).run(&bootstrap).await.map(drop)
    }

    /// Over the wires, where there are any.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        match self.ground {
            Ground::Growing => self.addresses.client.values().cloned().collect(),
            _ => self.network.client_addresses().into_values().collect(),
        }
    }

    /// Past the wires.
    pub(crate) fn direct(&self) -> String {
        let all: Vec<&str> = self.addresses.client.values().map(String::as_str).collect();
        all.join(",")
    }

    /// The authority, if the nodes speak TLS.
    pub(crate) fn ca(&self) -> Option<PathBuf> {
        (self.ground == Ground::Secure).then(|| self.file("ca.pem"))
    }

    /// A file of this cluster, such as a certificate or a token. It need not exist.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `holdfast` as an administrator, and returns what it printed.
    pub(crate) async fn command(&self, arguments: &[&str]) -> Checked<String> {
        let mut command = Command::new(&self.holdfast).endpoints(&self.direct());
        if let Some(ca) = self.ca() {
            command = command.ca(Some(&ca)).auth_file(&self.file("admin.token"));
        }
        command.run(arguments).await
    }

    pub(crate) fn calls(&self) -> Checked<Unary> {
        let calls = Unary::new(&self.direct()).map_err(broken)?;
        let Some(ca) = self.ca() else { return Ok(calls) };
        let calls = calls.tls(Tls::new(ca)).map_err(broken)?;
        calls.auth_file(self.file("admin.token")).map_err(broken)
    }

    /// A client of the suite's own, which the faults of the wires do not touch.
    pub(crate) async fn rival(&self) -> Checked<Client> {
        let mut builder = Client::builder().ttl(Duration::from_secs(30)).without_discovery();
        if let Some(ca) = self.ca() {
            builder = builder.tls(Tls::new(ca)).auth_file(self.file("admin.token"));
        }
        builder.connect(&self.direct()).await.map_err(broken)
    }

    /// Of the root group. Waits until there is one.
    pub(crate) async fn leader(&self) -> Checked<u64> {
        self.leader_in(1).await
    }

    /// Waits until the group has a leader.
    pub(crate) async fn leader_in(&self, group: u32) -> Checked<u64> {
        let give_up = Instant::now() + READY_PATIENCE;
        loop {
            if let Ok(status) = self.calls()?.cluster_status().await
                && let Some(group) = status.groups.iter().find(|it| it.group == group)
                && group.leader != 0
            {
                return Ok(group.leader);
            }
            if Instant::now() > give_up {
                let logs = self.dir.path().display();
                let words = format!("no leader of group {group}; the logs are in {logs}");
                return Err(Finding::Broken(words));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Another node joins, and votes. Returns its id.
    pub(crate) async fn add_node(&mut self) -> Checked<u64> {
        let id = NODES_MAX;
        let data_dir = self.nodes.data_dir(id).display().to_string();
        let (client, peer) = self.spare.clone();
        let number = id.to_string();
        let add = |timeout| {
            [
                ["cluster", "add", "--id", &number, "--peer-address", &peer],
                ["--client-address", &client, "--data-dir", &data_dir, "--timeout", timeout],
            ]
            .concat()
        };
        let mut config = self.command(&add("0s")).await?;
        config += &audit_settings(&self.file(&format!("audit-{id}.jsonl")));
        std::fs::write(self.nodes.config_path(id), config)?;
        self.nodes.start(id)?;
        // The same again is no second addition, and waits this time.
        self.command(&add("60s")).await?;
        self.addresses.client.insert(id, client);
        self.addresses.peer.insert(id, peer);
        Ok(id)
    }

    /// A node leaves for good, and its process ends.
    pub(crate) async fn remove_node(&mut self, node: u64) -> Checked {
        self.command(&["cluster", "remove", &node.to_string()]).await?;
        self.nodes.kill(&[node])?;
        self.addresses.client.remove(&node);
        self.addresses.peer.remove(&node);
        Ok(())
    }
}

/// No configuration names a number of groups. A node keeps the one that its data directory has.
fn divide(data_dir: &Path, node: u64) -> Checked {
    std::fs::create_dir(data_dir)?;
    let identity = format!(
        "version = 2\ncluster = \"conformance\"\nnode = {node}\ndata_dir_id = \"{node:032x}\"\ngroups = {GROUPS}\n"
    );
    Ok(std::fs::write(data_dir.join("identity.toml"), identity)?)
}

fn audit_settings(file: &Path) -> String {
    format!("[audit]\nfile = {file:?}\n")
}

async fn make_certificates(holdfast: &Path, dir: &Path) -> Checked {
    let to = dir.display().to_string();
    let mut all = vec![vec!["ca", "--cluster", "conformance"], vec!["client", "alice"]];
    let ids: Vec<String> = (1..=NODES).map(|id| id.to_string()).collect();
    all.extend(ids.iter().map(|id| vec!["node", "--id", id, "--host", "127.0.0.1"]));
    for arguments in all {
        let arguments = [&["cert"], &arguments[..], &["--dir", &to]].concat();
        Command::new(holdfast).run(&arguments).await?;
    }
    Ok(())
}

/// The settings of a node of which `{node}` is the id.
fn secure_settings(dir: &Path) -> String {
    let [cert, key, ca] =
        ["node-{node}.pem", "node-{node}-key.pem", "ca.pem"].map(|it| dir.join(it));
    format!(
        "[tls]\ncert = {cert:?}\nkey = {key:?}\nclient_ca = {ca:?}\n\
         [peer_tls]\ncert = {cert:?}\nkey = {key:?}\nca = {ca:?}\n\
         [auth]\nmode = \"required\"\n"
    )
}
