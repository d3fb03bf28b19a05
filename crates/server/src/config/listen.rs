//! `[listen]`: where this node listens, if that is not where it is reached.
//!
//! The node's entry in `[[nodes]]` is the address that the others and the clients are told. In a container, or behind a
//! port forward or NAT, no such address belongs to the machine itself, and the node listens elsewhere. Without a line
//! here it listens where it is reached.

use std::collections::BTreeMap;

use holdfast_service::AuthMode;
use serde::Deserialize;

use super::check_error::CheckError;
use super::{Address, MemberConfig, NodeConfig};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenConfig {
    #[serde(default)]
    pub client: Option<Address>,
    #[serde(default)]
    pub peer: Option<Address>,
    #[serde(default)]
    pub http: Option<Address>,
}

/// Where a node listens, port by port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listening<'a> {
    pub(crate) client: &'a Address,
    pub(crate) peer: &'a Address,
    /// Without one the node has no HTTP port.
    pub(crate) http: Option<&'a Address>,
}

impl ListenConfig {
    pub(crate) fn of<'a>(&'a self, member: &'a MemberConfig) -> Listening<'a> {
        Listening {
            client: self.client.as_ref().unwrap_or(&member.client),
            peer: self.peer.as_ref().unwrap_or(&member.peer),
            http: self.http.as_ref().or(member.http.as_ref()),
        }
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = &Address> {
        [&self.client, &self.peer, &self.http].into_iter().flatten()
    }
}

pub(super) fn check(config: &NodeConfig, member: &MemberConfig) -> Result<(), CheckError> {
    let listen = &config.listen;
    let ports = [
        ("client", listen.client.as_ref(), Some(&member.client)),
        ("peer", listen.peer.as_ref(), Some(&member.peer)),
        ("http", listen.http.as_ref(), member.http.as_ref()),
    ];
    let mut seen: BTreeMap<&Address, String> = BTreeMap::new();
    for (key, own, reached) in ports {
        if let (Some(own), Some(reached)) = (own, reached)
            && reached.is_unspecified()
        {
            let what = format!("{key} of node {}", member.id);
            let (address, own) = (reached.to_string(), own.to_string());
            return Err(CheckError::CannotBeReached { what, address, key, own });
        }
        let what = match own {
            Some(_) => format!("{key} in [listen]"),
            None => format!("{key} of node {}", member.id),
        };
        let Some(address) = own.or(reached) else { continue };
        if let Some(missing) = missing_protection(config)
            && !address.is_loopback()
        {
            return Err(CheckError::NotLoopback { what, address: address.to_string(), missing });
        }
        if let Some(first) = seen.insert(address, what.clone()) {
            let address = address.to_string();
            return Err(CheckError::DuplicateAddress { first, second: what, address });
        }
    }
    Ok(())
}

/// What the configuration lacks for ports that other machines reach.
fn missing_protection(config: &NodeConfig) -> Option<String> {
    let needed = [
        (config.tls.is_some(), "[tls] with cert, key and client_ca"),
        (config.peer_tls.is_some(), "[peer_tls] with cert, key and ca"),
        (config.auth.mode == AuthMode::Required, "[auth] mode = \"required\""),
    ];
    let missing: Vec<&str> =
        needed.into_iter().filter(|(is_there, _)| !is_there).map(|(_, words)| words).collect();
    let is_needed = !config.insecure && !missing.is_empty();
    is_needed.then(|| missing.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\n[[nodes]]";

    /// The example, with these lines for where node 1 listens.
    fn with(listen: &str) -> Result<NodeConfig, String> {
        let nodes = NodeConfig::EXAMPLE.replacen(NODES, &format!("\n[listen]\n{listen}{NODES}"), 1);
        NodeConfig::from_toml(&nodes).map_err(|error| error.to_string())
    }

    #[test]
    fn a_node_listens_at_its_announced_address_by_default() {
        let config = with("client = \"127.0.0.9:1420\"").unwrap();
        let member = config.this_node().unwrap();
        let listening = config.listen.of(member);
        assert_eq!(listening.client.as_str(), "127.0.0.9:1420");
        assert_eq!(listening.peer, &member.peer);
        assert_eq!(listening.http, member.http.as_ref());
    }

    #[test]
    fn the_listen_address_decides_whether_insecure_is_needed() {
        let words = with("peer = \"0.0.0.0:7421\"").unwrap_err();
        assert!(words.contains("peer in [listen] = '0.0.0.0:7421'"), "{words}");
        let behind_a_proxy = NodeConfig::EXAMPLE
            .replacen("client = \"127.0.0.1:7420\"", "client = \"locks.example:7420\"", 1)
            .replacen(NODES, &format!("\n[listen]\nclient = \"127.0.0.1:7420\"{NODES}"), 1);
        NodeConfig::from_toml(&behind_a_proxy).unwrap();
    }

    #[test]
    fn an_announced_address_can_be_dialled() {
        let text = NodeConfig::EXAMPLE
            .replacen("insecure = false", "insecure = true ", 1)
            .replacen("client = \"127.0.0.1:7420\"", "client = \"0.0.0.0:7420\"", 1)
            .replacen(NODES, &format!("\n[listen]\nclient = \"0.0.0.0:7420\"{NODES}"), 1);
        let words = NodeConfig::from_toml(&text).unwrap_err().to_string();
        assert!(words.contains("client of node 1 = '0.0.0.0:7420'"), "{words}");
        assert!(words.contains("write where others reach it"), "{words}");
    }

    #[test]
    fn ports_and_keys_are_checked() {
        let words = with("client = \"127.0.0.1:9\"\npeer = \"127.0.0.1:9\"").unwrap_err();
        assert!(
            words.starts_with("the configuration cannot work: client in [listen] and peer"),
            "{words}"
        );
        assert!(with("clients = \"127.0.0.1:9\"").unwrap_err().contains("clients"));
        assert!(with("client = \"127.0.0.1:0\"").is_err());
    }
}
