//! A cluster for one story, and what the stories do with it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use holdfast_client::unary::Unary;
use holdfast_client::{AcquireError, Client, Guard};
use holdfast_cluster_kit::{Addresses, Network, Nodes, Plan, WallClocks};
use holdfast_proto::v1::{GroupStatus, StatusResponse};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::failure::StoryFailure;
use crate::plain_session::PlainSession;
use crate::wait_until::until;

/// Longer than any wait in a story.
const WAIT: Duration = Duration::from_secs(40);
/// How long a call to nodes that are expected to refuse is kept up.
const CALL_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Stage {
    nodes: Nodes,
    pub(crate) network: Network,
    pub(crate) clocks: WallClocks,
    addresses: Addresses,
    holdfast: PathBuf,
    /// Goes last.
    _dir: TempDir,
}

impl Stage {
    /// Starts the nodes and waits until they serve.
    pub(crate) async fn set(holdfast: &Path, node_count: u64) -> Result<Stage, StoryFailure> {
        let dir = tempfile::Builder::new().prefix("holdfast-story-").tempdir()?;
        let addresses = Addresses::choose(node_count);
        let network = Network::between(&addresses.peer, &addresses.client).await?;
        let clocks = WallClocks::detect(dir.path());
        let plan = Plan {
            cluster: "stories",
            addresses: &addresses,
            network: Some(&network),
            settings: "",
        };
        let nodes = Nodes::prepare(holdfast, dir.path(), clocks.clone(), &plan)?;
        let holdfast = holdfast.to_owned();
        let mut stage = Stage { nodes, network, clocks, addresses, holdfast, _dir: dir };
        for node in stage.ids() {
            stage.nodes.start(node)?;
        }
        stage.leader().await?;
        Ok(stage)
    }

    pub(crate) fn kill(&mut self, nodes: &[u64]) -> Result<(), StoryFailure> {
        Ok(self.nodes.kill(nodes)?)
    }

    pub(crate) fn start(&mut self, nodes: &[u64]) -> Result<(), StoryFailure> {
        nodes.iter().try_for_each(|node| Ok(self.nodes.start(*node)?))
    }

    /// Nothing passes between these nodes and the others, and no client is told.
    ///
    /// The client ports of all nodes fall silent, on both sides. A node that finds no leader asks the others on these
    /// ports, and a client that is told of a leader follows it there: either would lead across the split. Within a
    /// side, nodes reach each other by their peer ports.
    pub(crate) fn split_off(&self, apart: &[u64]) {
        self.network.cut_peers(|from, to| apart.contains(&from) != apart.contains(&to));
        self.ids().into_iter().for_each(|node| self.network.silence_clients(node));
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.addresses.client.keys().copied().collect()
    }

    pub(crate) fn others(&self, than: &[u64]) -> Vec<u64> {
        self.ids().into_iter().filter(|node| !than.contains(node)).collect()
    }

    /// Where these nodes themselves listen, past all wires.
    pub(crate) fn endpoints_of(&self, nodes: &[u64]) -> String {
        let addresses = nodes.iter().filter_map(|node| self.addresses.client.get(node));
        addresses.cloned().collect::<Vec<_>>().join(",")
    }

    pub(crate) fn endpoints(&self) -> String {
        self.endpoints_of(&self.ids())
    }

    pub(crate) fn calls(&self) -> Result<Unary, StoryFailure> {
        Ok(Unary::new(&self.endpoints())?)
    }

    /// To these nodes, not for long.
    pub(crate) fn calls_to(&self, nodes: &[u64]) -> Result<Unary, StoryFailure> {
        Ok(Unary::new(&self.endpoints_of(nodes))?.timeout(CALL_PATIENCE))
    }

    pub(crate) async fn client(&self, who: &str, ttl: Duration) -> Result<Client, StoryFailure> {
        self.client_of(&self.ids(), who, ttl).await
    }

    /// One that reaches these nodes and no others.
    pub(crate) async fn client_of(
        &self,
        nodes: &[u64],
        who: &str,
        ttl: Duration,
    ) -> Result<Client, StoryFailure> {
        let client = Client::builder().ttl(ttl).note(who).without_discovery();
        Ok(client.connect(&self.endpoints_of(nodes)).await?)
    }

    /// `holdfast`, as a person at a terminal of this cluster would call it.
    pub(crate) fn holdfast(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.holdfast);
        command
            .args(arguments)
            .env("HOLDFAST_ENDPOINTS", self.endpoints())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn status(&self, name: &str) -> Result<StatusResponse, StoryFailure> {
        Ok(self.calls()?.status(name).await?)
    }

    /// Gets in line, and returns when the cluster knows it.
    pub(crate) async fn queue_up(
        &self,
        client: &Client,
        name: &'static str,
    ) -> Result<Waiting, StoryFailure> {
        let before = self.status(name).await?.waiter_count;
        let request = client.lock(name).actor(1).wait(WAIT);
        let waiting = tokio::spawn(request.acquire());
        self.has_waiters(name, before + 1).await?;
        Ok(waiting)
    }

    pub(crate) async fn has_waiters(&self, name: &str, count: u64) -> Result<(), StoryFailure> {
        let calls = self.calls()?;
        until(&format!("{count} wait for {name}"), || async {
            let status = calls.status(name).await.ok()?;
            (status.waiter_count == count).then_some(())
        })
        .await
    }

    /// The token under which a client holds it.
    pub(crate) async fn is_held(&self, name: &str) -> Result<u64, StoryFailure> {
        let calls = self.calls()?;
        until(&format!("{name} is held"), || async {
            let status = calls.status(name).await.ok()?;
            status.holders.first().map(|holder| holder.token)
        })
        .await
    }

    pub(crate) async fn is_free(&self, name: &str) -> Result<(), StoryFailure> {
        let calls = self.calls()?;
        until(&format!("{name} is free"), || async {
            let status = calls.status(name).await.ok()?;
            status.holders.is_empty().then_some(())
        })
        .await
    }

    pub(crate) async fn leader(&self) -> Result<u64, StoryFailure> {
        self.leader_among(&self.ids()).await
    }

    /// Which of these leads, in its own words and in the highest term.
    pub(crate) async fn leader_among(&self, nodes: &[u64]) -> Result<u64, StoryFailure> {
        until("there is a leader", || async {
            let mut leaders = Vec::new();
            for node in nodes {
                if let Some(view) = self.view_of(*node).await
                    && view.leader == *node
                {
                    leaders.push((view.term, *node));
                }
            }
            leaders.into_iter().max().map(|(_, node)| node)
        })
        .await
    }

    /// What a node itself knows of its group.
    pub(crate) async fn view_of(&self, node: u64) -> Option<GroupStatus> {
        let address = self.addresses.client.get(&node)?;
        let view = Unary::new(address).ok()?.own_view(address).await?;
        view.groups.into_iter().next()
    }

    /// A session that will not be heard of again, and holds the lock.
    pub(crate) async fn leave_behind(&self, name: &str, ttl: Duration) -> Result<(), StoryFailure> {
        let session = PlainSession::open(&self.calls()?, ttl).await?;
        session.try_acquire(name).await?;
        Ok(())
    }
}

pub(crate) type Waiting = JoinHandle<Result<Guard, AcquireError>>;
