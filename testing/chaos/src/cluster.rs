//! A whole cluster on loopback: processes, wires, clocks, and what is broken of them at the moment.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_cluster_kit::{Addresses, Network, Nodes, Plan, WallClocks};
use holdfast_proto::v1::GroupStatus;
use holdfast_sim::history::RealTime;

use crate::audited;
use crate::clients::Calls;
use crate::division::Division;
use crate::fault::{Fault, Target};
use crate::health::Health;
use crate::recorder::Recorder;
use crate::schedule::Size;

const READY_PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Nodes,
    network: Network,
    pub(crate) clocks: WallClocks,
    health: Health,
    pub(crate) division: Division,
    /// To each node itself, past the wires.
    direct: BTreeMap<u64, Calls>,
    recorder: Recorder,
    /// From when on a quorum was up, or not.
    pub(crate) quorum: Vec<(RealTime, bool)>,
    /// What no fault explains.
    pub(crate) surprises: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("an address cannot be used: {0}")]
    Address(#[from] tonic::transport::Error),
    #[error(
        "after {READY_PATIENCE:?} a group of the cluster has no leader; see the logs in {}", .0.display()
    )]
    NoLeader(PathBuf),
    #[error("the cluster has {found} groups, and should have {wanted}")]
    OtherGroups { found: usize, wanted: u32 },
}

impl Cluster {
    /// Starts all nodes and waits until each group has a leader.
    pub(crate) async fn start(
        binary: &Path,
        dir: &Path,
        size: Size,
        recorder: &Recorder,
    ) -> Result<Cluster, ClusterError> {
        let addresses = Addresses::choose(size.nodes);
        let network = Network::between(&addresses.peer, &addresses.client).await?;
        let clocks = WallClocks::detect(dir);
        let plan = Plan {
            cluster: "chaos",
            addresses: &addresses,
            network: Some(&network),
            settings: &settings(dir, size.groups),
        };
        let nodes = Nodes::prepare(binary, dir, clocks.clone(), &plan)?;
        let mut direct = BTreeMap::new();
        for (node, address) in &addresses.client {
            let only = BTreeMap::from([(*node, address.clone())]);
            direct.insert(*node, Calls::to(&only, 0, recorder)?);
        }
        let mut cluster = Cluster {
            nodes,
            network,
            clocks,
            health: Health::of(size.nodes),
            division: Division::of_one_group(),
            direct,
            recorder: recorder.clone(),
            quorum: Vec::new(),
            surprises: Vec::new(),
        };
        for node in cluster.ids() {
            cluster.nodes.start(node)?;
        }
        let give_up = Instant::now() + READY_PATIENCE;
        for group in 1..=size.groups {
            while cluster.leader(group).await.is_none() {
                if Instant::now() > give_up {
                    return Err(ClusterError::NoLeader(dir.to_owned()));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        let mut calls = Calls::to(&addresses.client, 0, recorder)?;
        let division = calls.division().await;
        cluster.division = division.ok_or_else(|| ClusterError::NoLeader(dir.to_owned()))?;
        let found = cluster.division.groups().len();
        if found != size.groups as usize {
            return Err(ClusterError::OtherGroups { found, wanted: size.groups });
        }
        cluster.note_quorum();
        Ok(cluster)
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.direct.keys().copied().collect()
    }

    /// Where clients reach the nodes.
    pub(crate) fn client_addresses(&self) -> BTreeMap<u64, String> {
        self.network.client_addresses()
    }

    /// Does it, and says to whom; none if it cannot be done on this machine.
    pub(crate) async fn begin(&mut self, fault: &Fault) -> Result<Option<Vec<u64>>, ClusterError> {
        let everyone = self.ids();
        let mut touched = Vec::new();
        match fault {
            Fault::Kill(target) => {
                touched = self.resolve(target).await;
                self.kill(&touched)?;
            }
            Fault::KillAll => self.kill(&everyone)?,
            Fault::Freeze(target) => {
                touched = self.resolve(target).await;
                for node in &touched {
                    self.nodes.freeze(*node)?;
                    self.health.frozen.insert(*node);
                }
            }
            Fault::RollingRestart => self.rolling_restart().await?,
            Fault::Isolate(target) => {
                touched = self.resolve(target).await;
                self.cut(|from, to| touched.contains(&from) != touched.contains(&to));
            }
            Fault::OneWay { from, to } => self.cut(|a, b| (a, b) == (*from, *to)),
            Fault::NoQuorum => self.cut(|_, _| true),
            Fault::BreakPeers => self.network.break_peers(),
            Fault::Delay { ms } => self.network.delay_peers(Duration::from_millis(*ms)),
            Fault::BreakClients => self.network.break_clients(),
            Fault::SilenceClients { node } => self.network.silence_clients(*node),
            Fault::ClockJump { .. } if !self.clocks.can_jump() => return Ok(None),
            Fault::ClockJump { node, seconds } => self.clocks.set(*node, *seconds)?,
        }
        self.note_quorum();
        Ok(Some(touched))
    }

    /// Undoes every fault.
    pub(crate) fn heal(&mut self) -> Result<(), ClusterError> {
        for node in std::mem::take(&mut self.health.frozen) {
            self.nodes.thaw(node)?;
        }
        self.network.heal();
        self.health.cut.clear();
        for node in self.ids() {
            if self.clocks.can_jump() {
                self.clocks.set(node, 0)?;
            }
        }
        for (node, status) in self.nodes.take_dead() {
            self.surprises.push(format!("node {node} ended by itself: {status}"));
            self.health.down.insert(node);
        }
        for node in std::mem::take(&mut self.health.down) {
            self.nodes.start(node)?;
        }
        self.note_quorum();
        Ok(())
    }

    /// How often a node took in the leader's snapshot. Ask before the nodes are stopped.
    pub(crate) fn snapshot_installs(&self) -> Result<u64, ClusterError> {
        Ok(self.nodes.snapshot_installs()?)
    }

    /// Whether a leader that hears of its followers does so over our wires: if not, no cut was one.
    pub(crate) async fn wires_are_in_use(&self) -> bool {
        let Some(leader) = self.leader(1).await else { return false };
        let carried = || -> Vec<u64> {
            let others = self.ids().into_iter().filter(|node| *node != leader);
            others.map(|other| self.network.carried_bytes(leader, other)).collect()
        };
        let before = carried();
        let give_up = Instant::now() + READY_PATIENCE;
        while before.iter().zip(carried()).any(|(before, now)| now <= *before) {
            if Instant::now() > give_up {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        true
    }

    /// SIGTERM to all.
    pub(crate) async fn stop(&mut self) -> Result<(), ClusterError> {
        for node in self.ids() {
            self.terminate(node).await?;
        }
        Ok(())
    }

    /// Each node's own view of all groups; none for those that do not answer.
    pub(crate) async fn views(&self) -> BTreeMap<u64, Option<Vec<GroupStatus>>> {
        let mut views = BTreeMap::new();
        for (node, calls) in &self.direct {
            views.insert(*node, calls.own_view().await);
        }
        views
    }

    /// Which node says of itself that it leads the group, in the highest term.
    async fn leader(&self, group: u32) -> Option<u64> {
        let views = self.views().await.into_iter();
        views
            .flat_map(|(node, groups)| groups.into_iter().flatten().map(move |view| (node, view)))
            .filter(|(_, view)| view.group == group)
            .filter(|(node, view)| view.leader == *node)
            .max_by_key(|(_, view)| view.term)
            .map(|(node, _)| node)
    }

    async fn resolve(&self, target: &Target) -> Vec<u64> {
        match target {
            Target::Nodes(nodes) => nodes.clone(),
            // While there is none, a node has to be it.
            Target::Leader { group } => vec![self.leader(*group).await.unwrap_or(1)],
        }
    }

    fn kill(&mut self, nodes: &[u64]) -> Result<(), ClusterError> {
        self.nodes.kill(nodes)?;
        self.health.down.extend(nodes);
        Ok(())
    }

    fn cut(&mut self, is_cut: impl Fn(u64, u64) -> bool) {
        self.network.cut_peers(&is_cut);
        for from in self.ids() {
            for to in self.ids() {
                if from != to && is_cut(from, to) {
                    self.health.cut.insert((from, to));
                }
            }
        }
    }

    async fn rolling_restart(&mut self) -> Result<(), ClusterError> {
        for node in self.ids() {
            self.health.down.insert(node);
            self.note_quorum();
            self.terminate(node).await?;
            self.nodes.start(node)?;
            let give_up = Instant::now() + READY_PATIENCE;
            while !self.knows_all_leaders(node).await {
                if Instant::now() > give_up {
                    let words = format!(
                        "long after its restart node {node} does not know the leaders of all groups"
                    );
                    self.surprises.push(words);
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            self.health.down.remove(&node);
            self.note_quorum();
        }
        Ok(())
    }

    async fn terminate(&mut self, node: u64) -> Result<(), ClusterError> {
        if !self.nodes.terminate(node).await? {
            self.surprises.push(format!("node {node} did not stop well on SIGTERM"));
        }
        Ok(())
    }

    async fn knows_all_leaders(&self, node: u64) -> bool {
        let Some(calls) = self.direct.get(&node) else { return false };
        let groups = calls.own_view().await.unwrap_or_default();
        groups.len() == self.division.groups().len() && groups.iter().all(|view| view.leader != 0)
    }

    fn note_quorum(&mut self) {
        self.quorum.push((self.recorder.now(), self.health.has_quorum()));
    }
}

/// All nodes have an audit file, which has the events of all groups.
fn settings(dir: &Path, groups: u32) -> String {
    let groups = match groups {
        1 => String::new(),
        groups => format!("groups = {groups}\n"),
    };
    let audit = audited::path(dir, "{node}");
    format!(
        "snapshot_every_entries = 100\n{groups}[audit]\nfile = {audit:?}\nfile_bytes = 1073741824"
    )
}
