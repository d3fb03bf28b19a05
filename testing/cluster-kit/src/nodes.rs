//! The `holdfast server` processes of one cluster.
//!
//! Every process that was started is stopped when [`Nodes`] is dropped, also a frozen one. Caveat: if
//! this program is itself killed with SIGKILL, its nodes go on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::network::Network;
use crate::ports::free_port;
use crate::wall_clock::WallClocks;

/// Longer than a node takes to hand over and stop, also on a slow machine.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// What a node says when it has done so.
const SNAPSHOT_INSTALLED: &str = "the leader's snapshot is installed";

#[derive(Debug)]
pub struct Nodes {
    /// A program, with its arguments, that becomes the one that follows; empty for none.
    launcher: Vec<OsString>,
    binary: PathBuf,
    dir: PathBuf,
    clocks: WallClocks,
    processes: BTreeMap<u64, Child>,
}

/// Where each node listens, by id.
#[derive(Debug, Default)]
pub struct Addresses {
    pub client: BTreeMap<u64, String>,
    pub peer: BTreeMap<u64, String>,
    /// Of those that have an HTTP port.
    pub http: BTreeMap<u64, String>,
}

impl Addresses {
    /// Ports that no process listened on a moment ago.
    pub fn choose(nodes: u64) -> Addresses {
        Addresses { http: BTreeMap::new(), ..Addresses::choose_with_http(nodes) }
    }

    /// As [`Addresses::choose`], with an HTTP port for each.
    pub fn choose_with_http(nodes: u64) -> Addresses {
        let choose =
            || (1..=nodes).map(|node| (node, format!("127.0.0.1:{}", free_port()))).collect();
        Addresses { client: choose(), peer: choose(), http: choose() }
    }
}

/// What is written into the configuration of the nodes.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub cluster: &'a str,
    pub addresses: &'a Addresses,
    /// Without it the nodes reach each other directly.
    pub network: Option<&'a Network>,
    /// More lines of the configuration. `{node}` in them stands for the node's id.
    pub settings: &'a str,
}

impl Plan<'_> {
    /// The node's own true addresses, and for the others those of the wires that lead to them.
    fn config_of(&self, node: u64, data_dir: &Path) -> String {
        let Plan { cluster, addresses, network, settings } = self;
        let settings = settings.replace("{node}", &node.to_string());
        let through_wires = network.map(Network::client_addresses);
        let mut text = format!(
            "cluster = \"{cluster}\"\nnode = {node}\ndata_dir = {data_dir:?}\n\
             announce_addresses = {}\n{settings}\n",
            // A node that knows where another really is goes there, past the wires.
            network.is_none()
        );
        for (other, client) in &addresses.client {
            let mut peer = addresses.peer.get(other).map_or("", String::as_str);
            let mut client = client.as_str();
            if let (Some(network), Some(wires)) = (network, &through_wires)
                && *other != node
            {
                client = wires.get(other).map_or("", String::as_str);
                peer = network.peer_address(node, *other).unwrap_or_default();
            }
            text += &format!("[[nodes]]\nid = {other}\nclient = \"{client}\"\npeer = \"{peer}\"\n");
            if let Some(http) = addresses.http.get(other) {
                text += &format!("http = \"{http}\"\n");
            }
        }
        text
    }
}

impl Nodes {
    /// Writes the configuration of each node to `dir`, where they also keep their data.
    pub fn prepare(
        binary: &Path,
        dir: &Path,
        clocks: WallClocks,
        plan: &Plan<'_>,
    ) -> io::Result<Nodes> {
        let (binary, dir) = (binary.to_owned(), dir.to_owned());
        for node in plan.addresses.client.keys() {
            clocks.set(*node, 0)?;
        }
        let nodes = Nodes { launcher: Vec::new(), binary, dir, clocks, processes: BTreeMap::new() };
        nodes.configure(plan)?;
        Ok(nodes)
    }

    /// Another configuration, for nodes that are started from here on.
    pub fn configure(&self, plan: &Plan<'_>) -> io::Result<()> {
        for node in plan.addresses.client.keys() {
            let config = plan.config_of(*node, &data_dir(&self.dir, *node));
            std::fs::write(config_path(&self.dir, *node), config)?;
        }
        Ok(())
    }

    /// Where the configuration of a node is, or is to be if the node joins later.
    pub fn config_path(&self, node: u64) -> PathBuf {
        config_path(&self.dir, node)
    }

    /// Where the data of a node is.
    pub fn data_dir(&self, node: u64) -> PathBuf {
        data_dir(&self.dir, node)
    }

    /// Nodes are started by this program, which gets the node's own command line as its last arguments.
    pub fn launched_by(mut self, launcher: impl IntoIterator<Item = OsString>) -> Nodes {
        self.launcher = launcher.into_iter().collect();
        self
    }

    /// Starts a node on the data that it has; does nothing if it runs.
    pub fn start(&mut self, node: u64) -> io::Result<()> {
        if self.processes.contains_key(&node) {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(log_path(&self.dir, node))?;
        let mut command = match self.launcher.split_first() {
            None => Command::new(&self.binary),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(&self.binary);
                command
            }
        };
        command
            .args(["server", "--config"])
            .arg(config_path(&self.dir, node))
            .env("HOLDFAST_LOG", "info")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.clocks.apply(node, &mut command);
        self.processes.insert(node, command.spawn()?);
        Ok(())
    }

    /// How often a node took in the leader's snapshot, as the nodes' own logs tell.
    pub fn snapshot_installs(&self) -> io::Result<u64> {
        let mut count = 0;
        for node in self.processes.keys() {
            let log = std::fs::read_to_string(log_path(&self.dir, *node))?;
            count += log.lines().filter(|line| line.contains(SNAPSHOT_INSTALLED)).count();
        }
        Ok(count as u64)
    }

    /// Up to where in the log the last snapshot on a node's disk goes; 0 if there is none.
    pub fn last_snapshot(&self, node: u64) -> io::Result<u64> {
        let mut last = 0;
        for file in std::fs::read_dir(data_dir(&self.dir, node).join("log"))? {
            let name = file?.file_name();
            last = last.max(snapshot_index(&name.to_string_lossy()).unwrap_or(0));
        }
        Ok(last)
    }

    /// `kill -9` of all these in one moment; those that do not run are left out.
    pub fn kill(&mut self, nodes: &[u64]) -> io::Result<()> {
        let mut killed = Vec::new();
        for node in nodes {
            if let Some(mut process) = self.processes.remove(node) {
                process.kill()?;
                killed.push(process);
            }
        }
        for mut process in killed {
            process.wait()?;
        }
        Ok(())
    }

    /// SIGTERM, and waits for the end. False: it did not end well, or not in time, and was killed.
    pub async fn terminate(&mut self, node: u64) -> io::Result<bool> {
        let Some(mut process) = self.processes.remove(&node) else { return Ok(true) };
        kill_process(Pid::from_child(&process), Signal::TERM)?;
        let give_up = Instant::now() + STOP_PATIENCE;
        loop {
            if let Some(status) = process.try_wait()? {
                return Ok(status.success());
            }
            if Instant::now() > give_up {
                process.kill()?;
                process.wait()?;
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn freeze(&self, node: u64) -> io::Result<()> {
        self.signal(node, Signal::STOP)
    }

    pub fn thaw(&self, node: u64) -> io::Result<()> {
        self.signal(node, Signal::CONT)
    }

    /// Nodes whose process has ended though the test did not ask it to, with how it ended. They are no longer
    /// counted as running.
    pub fn take_dead(&mut self) -> Vec<(u64, String)> {
        let mut dead = Vec::new();
        for (node, process) in &mut self.processes {
            if let Ok(Some(status)) = process.try_wait() {
                dead.push((*node, status.to_string()));
            }
        }
        for (node, _) in &dead {
            self.processes.remove(node);
        }
        dead
    }

    /// The nodes that were started and not stopped, with the ids of their processes.
    pub fn pids(&self) -> impl Iterator<Item = (u64, u32)> {
        self.processes.iter().map(|(node, process)| (*node, process.id()))
    }

    fn signal(&self, node: u64, signal: Signal) -> io::Result<()> {
        if let Some(process) = self.processes.get(&node) {
            kill_process(Pid::from_child(process), signal)?;
        }
        Ok(())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            // SIGKILL also ends a process that is frozen.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// `snap-<group>-<index>.snap`
fn snapshot_index(file: &str) -> Option<u64> {
    let (_group, index) = file.strip_prefix("snap-")?.strip_suffix(".snap")?.split_once('-')?;
    u64::from_str_radix(index, 16).ok()
}

fn data_dir(dir: &Path, node: u64) -> PathBuf {
    dir.join(format!("data-{node}"))
}

fn log_path(dir: &Path, node: u64) -> PathBuf {
    dir.join(format!("node-{node}.log"))
}

fn config_path(dir: &Path, node: u64) -> PathBuf {
    dir.join(format!("node-{node}.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_tells_by_its_name_how_far_it_goes() {
        assert_eq!(snapshot_index("snap-0-000000000000012c.snap"), Some(300));
        assert_eq!(snapshot_index("log-1a.seg"), None);
    }
}
