//! etcd, three nodes, and its own lock service (`v3lock`): fair, and the server does the waiting.
//!
//! Each client has a lease of its own, since two acquires under one lease are one lock. Clients ask the leader, which saves
//! etcd a hop. Leases outlive a run, so none has to be kept alive.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_bench::{Connections, Locks, Outcome, Servers};
use holdfast_cluster_kit::Addresses;
use tonic::transport::{Channel, Endpoint};

use crate::server::{Installation, Server, until_ready};
use crate::service::Service;

mod v3lockpb {
    #![allow(unreachable_pub, missing_debug_implementations, clippy::all, reason = "generated")]
    tonic::include_proto!("v3lockpb");
}

mod etcdserverpb {
    #![allow(unreachable_pub, missing_debug_implementations, clippy::all, reason = "generated")]
    tonic::include_proto!("etcdserverpb");
}

use etcdserverpb::kv_client::KvClient;
use etcdserverpb::lease_client::LeaseClient;
use etcdserverpb::maintenance_client::MaintenanceClient;
use etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest, RangeRequest, StatusRequest};
use v3lockpb::lock_client::LockClient;
use v3lockpb::{LockRequest, UnlockRequest};

const NODES: u64 = 3;
const LEASE_SECONDS: i64 = 3_600;

#[derive(Debug)]
pub(crate) struct Etcd {
    nodes: Vec<Server>,
    addresses: Vec<String>,
    leader: usize,
    /// All nodes are asked, in turn.
    spread: bool,
    connections: AtomicUsize,
}

impl Etcd {
    pub(crate) async fn start(installation: &Installation, program: &Path) -> Outcome<Etcd> {
        let addresses = Addresses::choose(NODES);
        let peers: Vec<String> =
            addresses.peer.iter().map(|(node, peer)| format!("n{node}=http://{peer}")).collect();
        let mut nodes = Vec::new();
        for (node, client) in &addresses.client {
            let name = format!("etcd-{node}");
            let data = installation.new_directory(&name)?.display().to_string();
            let peer = format!("http://{}", addresses.peer[node]);
            let client = format!("http://{client}");
            let options = [
                ("--name", format!("n{node}")),
                ("--data-dir", data),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--initial-cluster", peers.join(",")),
                ("--initial-cluster-state", "new".to_owned()),
                ("--initial-cluster-token", "compare".to_owned()),
            ];
            let options = options.into_iter().flat_map(|(key, value)| [key.to_owned(), value]);
            nodes.push(Server::start(installation, &name, program, options)?);
        }
        let addresses: Vec<String> = addresses.client.into_values().collect();
        let leader = until_ready("etcd", &mut nodes, async || leader_of(&addresses).await).await?;
        let connections = AtomicUsize::new(0);
        Ok(Etcd { nodes, addresses, leader, spread: false, connections })
    }
}

/// The place of the node that leads.
async fn leader_of(addresses: &[String]) -> Outcome<usize> {
    for (place, address) in addresses.iter().enumerate() {
        let Ok(channel) = open(address).connect().await else { continue };
        let status = MaintenanceClient::new(channel).status(StatusRequest {}).await;
        let Ok(status) = status.map(tonic::Response::into_inner) else { continue };
        if status.leader != 0 && status.header.is_some_and(|own| own.member_id == status.leader) {
            return Ok(place);
        }
    }
    Err("etcd has no leader".into())
}

/// The same, once every node knows a leader.
async fn all_serve(addresses: &[String]) -> Outcome<usize> {
    for address in addresses {
        let channel = open(address).connect().await?;
        let status = MaintenanceClient::new(channel).status(StatusRequest {}).await?;
        if status.into_inner().leader == 0 {
            return Err(format!("{address} knows no leader").into());
        }
    }
    leader_of(addresses).await
}

fn open(address: &str) -> Endpoint {
    // An address that we have chosen is one.
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap_or_else(|_| Endpoint::from_static("http://127.0.0.1:1"))
        .tcp_nodelay(true)
}

#[derive(Debug)]
pub(crate) struct EtcdClient {
    channel: Channel,
    locks: LockClient<Channel>,
    reads: KvClient<Channel>,
    lease: i64,
}

impl EtcdClient {
    async fn over(channel: Channel) -> Outcome<EtcdClient> {
        let request = LeaseGrantRequest { ttl: LEASE_SECONDS };
        let lease = LeaseClient::new(channel.clone()).lease_grant(request).await?.into_inner().id;
        let (locks, reads) = (LockClient::new(channel.clone()), KvClient::new(channel.clone()));
        Ok(EtcdClient { channel, locks, reads, lease })
    }
}

impl Connections for Etcd {
    type Client = EtcdClient;

    async fn connect(&self) -> Outcome<EtcdClient> {
        let turn = self.connections.fetch_add(1, Ordering::Relaxed) % self.addresses.len();
        let address = &self.addresses[if self.spread { turn } else { self.leader }];
        EtcdClient::over(open(address).connect().await?).await
    }
}

impl Service for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn servers(&self) -> Servers {
        Servers(self.nodes.iter().map(Server::pid).collect())
    }

    async fn kill_leader(&mut self) -> Outcome<bool> {
        self.leader = leader_of(&self.addresses).await?;
        self.nodes[self.leader].kill()?;
        Ok(true)
    }

    async fn bring_back(&mut self) -> Outcome {
        self.nodes[self.leader].start_again()?;
        let ask = async || all_serve(&self.addresses).await;
        self.leader = until_ready("etcd", &mut self.nodes, ask).await?;
        Ok(())
    }

    fn connect_to_all(&mut self, all: bool) {
        self.spread = all;
    }
}

impl Locks for EtcdClient {
    /// The key of the owner.
    type Held = Vec<u8>;

    async fn another(&self) -> Outcome<EtcdClient> {
        EtcdClient::over(self.channel.clone()).await
    }

    async fn acquire(&self, name: &str) -> Outcome<Vec<u8>> {
        let request = LockRequest { name: name.as_bytes().to_vec(), lease: self.lease };
        Ok(self.locks.clone().lock(request).await?.into_inner().key)
    }

    async fn release(&self, key: Vec<u8>) -> Outcome {
        self.locks.clone().unlock(UnlockRequest { key }).await?;
        Ok(())
    }

    /// Those who hold it or wait for it; linearizable by default.
    async fn read(&self, name: &str) -> Outcome<Option<()>> {
        let (key, range_end) = (format!("{name}/").into_bytes(), format!("{name}0").into_bytes());
        let range = self.reads.clone().range(RangeRequest { key, range_end }).await?.into_inner();
        if range.count == 0 {
            Err(format!("{name} is said to be free").into())
        } else {
            Ok(Some(()))
        }
    }

    async fn close(self) -> Outcome {
        let request = LeaseRevokeRequest { id: self.lease };
        LeaseClient::new(self.channel).lease_revoke(request).await?;
        Ok(())
    }
}
