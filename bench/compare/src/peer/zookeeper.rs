//! ZooKeeper, three nodes, and the standard recipe: an ephemeral node with a number, and a client that is not the first watches
//! the one before. Clients ask the leader, which saves ZooKeeper a hop.
//!
//! The directory of a lock is made once and stays, as it does with the usual libraries.

mod heap;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_bench::{Connections, Locks, Outcome, PREFIX, Servers};
use holdfast_cluster_kit::Addresses;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error};

use crate::server::{Installation, Server, until_ready};
use crate::service::Service;

const NODES: u64 = 3;
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const DIRECTORY: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
/// Of what is asked of a server in words.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct ZooKeeper {
    nodes: Vec<Server>,
    addresses: Vec<String>,
    leader: usize,
    spread: bool,
}

impl ZooKeeper {
    /// `class_path` is where its classes are: jars and the directory of its configuration of logs.
    pub(crate) async fn start(
        installation: &Installation,
        java: &Path,
        class_path: &str,
    ) -> Outcome<ZooKeeper> {
        // Each node needs three ports.
        let addresses = Addresses::choose(NODES);
        let elections = Addresses::choose(NODES);
        let port = |address: &str| address.rsplit_once(':').map_or("", |(_, port)| port).to_owned();
        let members: String = addresses
            .peer
            .iter()
            .map(|(node, peer)| format!("server.{node}={peer}:{}\n", port(&elections.client[node])))
            .collect();
        let mut nodes = Vec::new();
        for (node, client) in &addresses.client {
            let name = format!("zookeeper-{node}");
            let data = installation.new_directory(&name)?;
            std::fs::write(data.join("myid"), node.to_string())?;
            // The defaults, but for the number of connections (60 from one address) and a port that all want.
            let config = format!(
                "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
                 maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n{members}",
                data.display(),
                port(client)
            );
            let file = installation.directory.join(format!("{name}.cfg"));
            std::fs::write(&file, config)?;
            let options = [
                format!("-Dzookeeper.log.dir={}", installation.directory.display()),
                "-Dzookeeper.root.logger=WARN,CONSOLE".to_owned(),
                "-cp".to_owned(),
                class_path.to_owned(),
                "org.apache.zookeeper.server.quorum.QuorumPeerMain".to_owned(),
                file.display().to_string(),
            ];
            nodes.push(Server::start(installation, &name, java, options)?);
        }
        let addresses: Vec<String> = addresses.client.into_values().collect();
        let leader = until_ready("ZooKeeper", &mut nodes, async || leader_of(&addresses)).await?;
        Ok(ZooKeeper { nodes, addresses, leader, spread: false })
    }
}

/// The place of the node that leads.
fn leader_of(addresses: &[String]) -> Outcome<usize> {
    let leads =
        |address: &String| ask_in_words(address).is_ok_and(|it| it.contains("Mode: leader"));
    addresses.iter().position(leads).ok_or_else(|| "ZooKeeper has no leader".into())
}

/// The same, once every node takes part.
fn all_serve(addresses: &[String]) -> Outcome<usize> {
    for address in addresses {
        if !ask_in_words(address)?.contains("Mode: ") {
            return Err(format!("{address} does not serve").into());
        }
    }
    leader_of(addresses)
}

fn ask_in_words(address: &str) -> Outcome<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.write_all(b"srvr")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A session, which clients share.
#[derive(Debug)]
pub(crate) struct ZooKeeperClient(Arc<Client>);

impl Connections for ZooKeeper {
    type Client = ZooKeeperClient;

    async fn connect(&self) -> Outcome<ZooKeeperClient> {
        let all = self.addresses.join(",");
        let addresses = if self.spread { &all } else { &self.addresses[self.leader] };
        let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
        let client = connector.connect(addresses).await?;
        Ok(ZooKeeperClient(Arc::new(client)))
    }
}

impl Service for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn servers(&self) -> Servers {
        Servers(self.nodes.iter().map(Server::pid).collect())
    }

    /// What lives on the heap after a collection: a virtual machine gives little of what it once had back.
    fn memory(&self) -> Outcome<Vec<u64>> {
        self.nodes.iter().map(|node| heap::live_bytes(node.pid())).collect()
    }

    async fn kill_leader(&mut self) -> Outcome<bool> {
        self.leader = leader_of(&self.addresses)?;
        self.nodes[self.leader].kill()?;
        Ok(true)
    }

    async fn bring_back(&mut self) -> Outcome {
        self.nodes[self.leader].start_again()?;
        let ask = async || all_serve(&self.addresses);
        self.leader = until_ready("ZooKeeper", &mut self.nodes, ask).await?;
        Ok(())
    }

    fn connect_to_all(&mut self, all: bool) {
        self.spread = all;
    }
}

impl ZooKeeperClient {
    /// A place in the queue of a lock.
    async fn stand_in_line(&self, directory: &str) -> Outcome<String> {
        let prefix = format!("{directory}/lock-");
        let sequence = match self.0.create(&prefix, b"", &LOCK).await {
            Err(Error::NoNode) => {
                self.0.mkdir(directory, &DIRECTORY).await?;
                self.0.create(&prefix, b"", &LOCK).await?.1
            }
            created => created?.1,
        };
        Ok(format!("lock-{sequence}"))
    }

    /// Returns when no client is before this one.
    async fn wait_in_line(&self, directory: &str, own: &str) -> Outcome {
        loop {
            let children = self.0.list_children(directory).await?;
            // All names are equally long, so their order is that of their numbers.
            let before = children.iter().filter(|child| child.as_str() < own).max();
            let Some(before) = before else { return Ok(()) };
            let before = format!("{directory}/{before}");
            if let (Some(_), watcher) = self.0.check_and_watch_stat(&before).await? {
                watcher.changed().await;
            }
        }
    }
}

/// `bench/a/b` is kept in `/bench/a-b`.
fn directory_of(name: &str) -> String {
    let (prefix, rest) = name.split_at(PREFIX.len().min(name.len()));
    format!("/{prefix}{}", rest.replace('/', "-"))
}

impl Locks for ZooKeeperClient {
    /// The path of the node that stands for it.
    type Held = String;

    async fn another(&self) -> Outcome<ZooKeeperClient> {
        Ok(ZooKeeperClient(Arc::clone(&self.0)))
    }

    async fn acquire(&self, name: &str) -> Outcome<String> {
        let directory = directory_of(name);
        let own = self.stand_in_line(&directory).await?;
        self.wait_in_line(&directory, &own).await?;
        Ok(format!("{directory}/{own}"))
    }

    async fn release(&self, path: String) -> Outcome {
        Ok(self.0.delete(&path, None).await?)
    }

    /// A read alone may be old; one behind a `sync` is not. Both are sent at once.
    async fn read(&self, name: &str) -> Outcome<Option<()>> {
        let directory = directory_of(name);
        let (synced, children) =
            tokio::join!(self.0.sync(&directory), self.0.list_children(&directory));
        synced?;
        if children?.is_empty() {
            Err(format!("{name} is said to be free").into())
        } else {
            Ok(Some(()))
        }
    }

    /// The session is closed with the last of its clients.
    async fn close(self) -> Outcome {
        Ok(())
    }
}
