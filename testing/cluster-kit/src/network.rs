//! All wires of a cluster: one from each node to each other, and one from the clients to each node.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::wire::Wire;

#[derive(Debug)]
pub struct Network {
    /// By who dials, and whom.
    peers: BTreeMap<(u64, u64), Wire>,
    clients: BTreeMap<u64, Wire>,
}

impl Network {
    /// The true addresses of all nodes, by id.
    pub async fn between(
        peer_addresses: &BTreeMap<u64, String>,
        client_addresses: &BTreeMap<u64, String>,
    ) -> io::Result<Network> {
        let mut peers = BTreeMap::new();
        for from in peer_addresses.keys() {
            for (to, address) in peer_addresses.iter().filter(|(to, _)| *to != from) {
                peers.insert((*from, *to), Wire::to(address).await?);
            }
        }
        let mut clients = BTreeMap::new();
        for (node, address) in client_addresses {
            clients.insert(*node, Wire::to(address).await?);
        }
        Ok(Network { peers, clients })
    }

    /// Where `from` finds the peer port of `to`.
    pub fn peer_address(&self, from: u64, to: u64) -> Option<&str> {
        self.peers.get(&(from, to)).map(Wire::address)
    }

    /// How much passed between two peers over the wire from `from` to `to`.
    pub fn carried_bytes(&self, from: u64, to: u64) -> u64 {
        self.peers.get(&(from, to)).map_or(0, Wire::carried_bytes)
    }

    /// Where clients find each node.
    pub fn client_addresses(&self) -> BTreeMap<u64, String> {
        self.clients.iter().map(|(node, wire)| (*node, wire.address().to_owned())).collect()
    }

    /// Cuts every wire between peers for which `is_cut` says so.
    pub fn cut_peers(&self, is_cut: impl Fn(u64, u64) -> bool) {
        for ((from, to), wire) in &self.peers {
            if is_cut(*from, *to) {
                wire.cut();
            }
        }
    }

    pub fn delay_peers(&self, delay: Duration) {
        self.peers.values().for_each(|wire| wire.delay(delay));
    }

    pub fn break_peers(&self) {
        self.peers.values().for_each(Wire::break_connections);
    }

    pub fn break_clients(&self) {
        self.clients.values().for_each(Wire::break_connections);
    }

    /// The wires over which clients reach the nodes.
    pub fn client_wires(&self) -> impl Iterator<Item = &Wire> {
        self.clients.values()
    }

    pub fn silence_clients(&self, node: u64) {
        if let Some(wire) = self.clients.get(&node) {
            wire.cut();
        }
    }

    pub fn heal(&self) {
        self.peers.values().chain(self.clients.values()).for_each(Wire::heal);
    }
}
