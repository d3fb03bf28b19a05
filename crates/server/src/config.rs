//! What an operator tells one node: a TOML file, or [`NodeConfig::dev_cluster`].
//!
//! A key that is not known is an error, and so is a value that cannot work: [`ConfigError`] names the
//! key, says what is wrong and what to do. A [`NodeConfig`] that exists has passed all checks.
//!
//! The limits of the lock table are not here. They are part of the replicated state machine and the
//! same on every node; see `holdfast_core::Limits`.

mod address;
mod check;
mod check_error;
mod connections;
mod http;
mod kafka;
mod listen;
mod outgoing_tls;
mod tls;
mod tracing;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_jwt::JwtConfig;
use holdfast_service::{AuthMode, OnAuditFailure};
use serde::{Deserialize, Deserializer, de};

pub use self::tracing::TracingConfig;
pub use address::{Address, AddressError};
pub use check_error::{CheckError, CheckErrors};
#[cfg(test)]
pub(crate) use connections::ARRIVAL_MS_MAX;
pub use connections::ConnectionsConfig;
use holdfast_proto::peer_v1::Timing;
use holdfast_replica::NodeId;
pub use http::HttpConfig;
pub use kafka::{KafkaConfig, SaslConfig, SaslMechanism};
pub use listen::ListenConfig;
pub use outgoing_tls::OutgoingTlsConfig;
pub use tls::{PeerTlsConfig, TlsConfig};

use crate::identity::Identity;

/// The settings of one node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// 1 to 64 of `a-z`, `0-9` and `-`. Nodes refuse peers of another cluster.
    pub cluster: String,
    /// This node's id, one of those in `nodes`.
    pub node: u64,
    pub data_dir: PathBuf,
    /// The node may listen on other addresses than loopback without TLS and authentication.
    #[serde(default)]
    pub insecure: bool,
    /// The node is new, and was added to a cluster that runs: it learns the others from it. Without meaning
    /// once it has.
    #[serde(default)]
    pub join: bool,
    /// Whether the cluster learns where this node and those in its file are reached. Without it each node reaches
    /// the others by the addresses in its own file, for networks in which these differ.
    #[serde(default = "defaults::announce_addresses")]
    pub announce_addresses: bool,
    #[serde(default = "defaults::tick_ms")]
    pub tick_ms: u64,
    #[serde(default = "defaults::election_ticks")]
    pub election_ticks: u64,
    #[serde(default = "defaults::heartbeat_ticks")]
    pub heartbeat_ticks: u64,
    /// How much longer sessions live that would end around a change of leader.
    #[serde(default = "defaults::grace_ms")]
    pub grace_ms: u64,
    /// After how many log entries a snapshot is taken.
    #[serde(default = "defaults::snapshot_every_entries")]
    pub snapshot_every_entries: u64,
    /// After how many bytes of log entries a snapshot is taken, if those are reached first; at least as many as the
    /// last one had.
    #[serde(default = "defaults::snapshot_every_bytes")]
    pub snapshot_every_bytes: u64,
    /// How many events are kept for those who watch.
    #[serde(default = "defaults::events_kept")]
    pub events_kept: u64,
    #[serde(default = "defaults::segment_bytes")]
    pub segment_bytes: u64,
    /// Which log lines are written, in the words of `HOLDFAST_LOG`, which goes before it.
    #[serde(default)]
    pub log: Option<String>,
    #[serde(default)]
    pub log_format: LogFormat,
    /// A file with a line for every event.
    #[serde(default)]
    pub audit: Option<AuditConfig>,
    /// Where spans go.
    #[serde(default)]
    pub tracing: Option<TracingConfig>,
    /// What the node demands of its callers.
    #[serde(default)]
    pub auth: AuthConfig,
    #[serde(default)]
    pub http: HttpConfig,
    /// Where this node listens, if that is not where it is reached.
    #[serde(default)]
    pub listen: ListenConfig,
    /// How the client port and the HTTP port are protected; without it they speak plaintext.
    #[serde(default)]
    pub tls: Option<TlsConfig>,
    /// How the peer port is protected; without it it speaks plaintext.
    #[serde(default)]
    pub peer_tls: Option<PeerTlsConfig>,
    /// What clients may take of this node.
    #[serde(default)]
    pub connections: ConnectionsConfig,
    /// Where the leader publishes every event.
    #[serde(default)]
    pub kafka: Option<KafkaConfig>,
    /// How many Raft groups the cluster has; the same on all its nodes, and chosen when it is founded. If a file does not
    /// state it, an existing data directory does.
    #[serde(default = "defaults::groups")]
    pub groups: u32,
    /// Whether the leaders of several groups are spread over the nodes. For tests, which choose the leaders.
    #[serde(skip, default = "defaults::spreads_leaders")]
    pub spreads_leaders: bool,
    /// How long a group stays where an operator has moved its leadership. For tests, on machines that are so busy that
    /// leaders change by themselves.
    #[serde(skip, default = "defaults::leaders_stay_for")]
    pub leaders_stay_for: Duration,
    /// The first members, this node included; those who come later are in the cluster's log. A node that
    /// joins lists itself alone.
    pub nodes: Vec<MemberConfig>,
}

/// What a node demands of its callers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    #[serde(default, deserialize_with = "auth_mode")]
    pub mode: AuthMode,
    /// Whose JWTs the node takes; without it none.
    #[serde(default)]
    pub jwt: Option<JwtConfig>,
}

fn auth_mode<'de, D: Deserializer<'de>>(text: D) -> Result<AuthMode, D::Error> {
    String::deserialize(text)?.parse().map_err(de::Error::custom)
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// The audit file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditConfig {
    pub file: PathBuf,
    /// A larger file is put aside, and a new one begun.
    #[serde(default = "defaults::audit_file_bytes")]
    pub file_bytes: u64,
    /// How many that were put aside are kept.
    #[serde(default = "defaults::audit_files_kept")]
    pub files_kept: u64,
    /// What the node does while the file cannot be written.
    #[serde(default, deserialize_with = "on_audit_failure")]
    pub on_failure: OnAuditFailure,
}

fn on_audit_failure<'de, D: Deserializer<'de>>(text: D) -> Result<OnAuditFailure, D::Error> {
    String::deserialize(text)?.parse().map_err(de::Error::custom)
}

impl AuditConfig {
    pub fn new(file: PathBuf) -> AuditConfig {
        AuditConfig {
            file,
            file_bytes: defaults::audit_file_bytes(),
            files_kept: defaults::audit_files_kept(),
            on_failure: OnAuditFailure::default(),
        }
    }
}

/// One node of the cluster, as all the others know it. It listens there too, unless its `[listen]` says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberConfig {
    pub id: u64,
    /// Where clients reach it.
    pub client: Address,
    /// Where the other nodes reach it.
    pub peer: Address,
    /// Where probes, scrapers and people reach it; without one the node has no HTTP port.
    #[serde(default)]
    pub http: Option<Address>,
}

/// Why there is no configuration to run with.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot read the secret for the dashboard's actions from {}: {source}", path.display())]
    Secret { path: PathBuf, source: std::io::Error },
    #[error(
        "{} has the secret for the dashboard's actions, and other users of this machine can read it: `chmod 600 {}`",
        path.display(),
        path.display()
    )]
    SecretIsReadable { path: PathBuf },
    #[error("the configuration file is not valid: {0}")]
    Parse(#[from] Box<toml::de::Error>),
    #[error("the configuration cannot work: {0}")]
    Check(#[from] CheckErrors),
}

impl From<CheckError> for ConfigError {
    fn from(error: CheckError) -> ConfigError {
        ConfigError::Check(error.into())
    }
}

impl NodeConfig {
    /// A complete file for one of three nodes on one machine.
    pub const EXAMPLE: &'static str = include_str!("config/example.toml");

    pub fn load(path: &Path) -> Result<NodeConfig, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let mut config = NodeConfig::parse(&text)?;
        // A data directory keeps the number of groups that it was made with, if a backup was restored into it.
        if !states_groups(&text) {
            config.groups = Identity::groups_in(&config.data_dir).unwrap_or(config.groups);
        }
        config.check()?;
        Ok(config)
    }

    pub fn from_toml(text: &str) -> Result<NodeConfig, ConfigError> {
        let config = NodeConfig::parse(text)?;
        config.check()?;
        Ok(config)
    }

    fn parse(text: &str) -> Result<NodeConfig, ConfigError> {
        Ok(toml::from_str(text).map_err(Box::new)?)
    }

    /// The nodes of a cluster on loopback, for `holdfast dev` and for tests. Node `i` (from 0) has
    /// the ports `base_port + 10 * i` for clients, the next one for peers and the one after that for
    /// HTTP, and the directory `data_dir/node-<id>`.
    pub fn dev_cluster(
        node_count: usize,
        data_dir: &Path,
        base_port: u16,
    ) -> Result<Vec<NodeConfig>, ConfigError> {
        let nodes = (0..node_count)
            .map(|i| {
                let port = |offset: usize| {
                    u16::try_from(usize::from(base_port) + 10 * i + offset)
                        .map_err(|_| CheckError::PortsRunOut { base_port })
                };
                let loopback = |port| Address::from(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
                Ok(MemberConfig {
                    id: i as u64 + 1,
                    client: loopback(port(0)?),
                    peer: loopback(port(1)?),
                    http: Some(loopback(port(2)?)),
                })
            })
            .collect::<Result<Vec<MemberConfig>, CheckError>>()?;
        let configs: Vec<NodeConfig> = nodes
            .iter()
            .map(|member| NodeConfig {
                cluster: "dev".to_owned(),
                node: member.id,
                data_dir: data_dir.join(format!("node-{}", member.id)),
                insecure: false,
                join: false,
                announce_addresses: defaults::announce_addresses(),
                tick_ms: defaults::tick_ms(),
                election_ticks: defaults::election_ticks(),
                heartbeat_ticks: defaults::heartbeat_ticks(),
                grace_ms: defaults::grace_ms(),
                snapshot_every_entries: defaults::snapshot_every_entries(),
                snapshot_every_bytes: defaults::snapshot_every_bytes(),
                events_kept: defaults::events_kept(),
                segment_bytes: defaults::segment_bytes(),
                log: None,
                log_format: LogFormat::default(),
                audit: None,
                tracing: None,
                auth: AuthConfig::default(),
                http: HttpConfig::default(),
                listen: ListenConfig::default(),
                tls: None,
                peer_tls: None,
                connections: ConnectionsConfig::default(),
                kafka: None,
                groups: defaults::groups(),
                spreads_leaders: defaults::spreads_leaders(),
                leaders_stay_for: defaults::leaders_stay_for(),
                nodes: nodes.clone(),
            })
            .collect();
        check::check_node_count(node_count)?;
        configs.iter().try_for_each(check::check)?;
        Ok(configs)
    }

    /// For code that fills in a [`NodeConfig`] itself; files have been checked when they were read.
    pub fn check(&self) -> Result<(), ConfigError> {
        Ok(check::check(self)?)
    }

    pub fn node_id(&self) -> NodeId {
        NodeId(self.node)
    }

    /// This node among [`NodeConfig::nodes`].
    pub fn this_node(&self) -> Result<&MemberConfig, ConfigError> {
        let listed = self.nodes.iter().find(|member| member.id == self.node);
        Ok(listed.ok_or_else(|| check::not_listed(self))?)
    }

    /// Another HTTP address for this node, to listen on and to be reached by, or none.
    pub fn set_http(&mut self, address: Option<Address>) {
        let id = self.node;
        self.listen.http = None;
        for member in self.nodes.iter_mut().filter(|member| member.id == id) {
            member.http.clone_from(&address);
        }
    }

    pub fn tick(&self) -> Duration {
        Duration::from_millis(self.tick_ms)
    }

    /// What has to be the same on all nodes.
    pub(crate) fn timing(&self) -> Timing {
        timing(self.tick_ms, self.election_ticks)
    }

    /// That of a configuration that says nothing of it.
    pub fn usual_timing() -> Timing {
        timing(defaults::tick_ms(), defaults::election_ticks())
    }
}

/// Whether the file itself has a number of groups.
fn states_groups(text: &str) -> bool {
    toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("groups"))
}

fn timing(tick_ms: u64, election_ticks: u64) -> Timing {
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Timing { tick_ms: number(tick_ms), election_ticks: number(election_ticks) }
}

mod defaults {
    use std::time::Duration;

    pub(super) fn spreads_leaders() -> bool {
        true
    }

    pub(super) fn leaders_stay_for() -> Duration {
        Duration::from_secs(300)
    }

    pub(super) fn groups() -> u32 {
        1
    }

    pub(super) fn announce_addresses() -> bool {
        true
    }

    pub(super) fn tick_ms() -> u64 {
        50
    }

    pub(super) fn election_ticks() -> u64 {
        10
    }

    pub(super) fn heartbeat_ticks() -> u64 {
        2
    }

    pub(super) fn grace_ms() -> u64 {
        1_000
    }

    pub(super) fn events_kept() -> u64 {
        65_536
    }

    pub(super) fn snapshot_every_entries() -> u64 {
        100_000
    }

    pub(super) fn snapshot_every_bytes() -> u64 {
        16 * 1024 * 1024
    }

    pub(super) fn segment_bytes() -> u64 {
        16 * 1024 * 1024
    }

    pub(super) fn audit_file_bytes() -> u64 {
        128 * 1024 * 1024
    }

    pub(super) fn audit_files_kept() -> u64 {
        8
    }

    pub(super) fn kafka_create_topic() -> bool {
        true
    }

    pub(super) fn kafka_partitions() -> u64 {
        8
    }

    pub(super) fn kafka_events_in_flight() -> u64 {
        4_096
    }

    pub(super) fn kafka_timeout_ms() -> u64 {
        10_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_valid_configuration_and_shows_the_defaults() {
        let example = NodeConfig::from_toml(NodeConfig::EXAMPLE).unwrap();
        assert_eq!(example.nodes.len(), 3);
        let tuning: Vec<&str> = NodeConfig::EXAMPLE
            .lines()
            .filter(|line| {
                ["tick_ms", "election_", "heartbeat_", "grace_", "snapshot_", "segment_"]
                    .iter()
                    .any(|key| line.starts_with(key))
            })
            .collect();
        assert_eq!(tuning.len(), 7);
        let without_tuning: String = NodeConfig::EXAMPLE
            .lines()
            .filter(|line| !tuning.contains(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        assert_eq!(NodeConfig::from_toml(&without_tuning).unwrap(), example);
        assert_eq!(example.connections, ConnectionsConfig::default());
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        let text = format!("tick_mss = 50\n{}", NodeConfig::EXAMPLE);
        let error = NodeConfig::from_toml(&text).unwrap_err().to_string();
        assert!(error.contains("tick_mss"), "{error}");
    }

    #[test]
    fn a_missing_key_is_an_error_that_names_it() {
        let text = NodeConfig::EXAMPLE.replace("cluster = ", "# cluster = ");
        let error = NodeConfig::from_toml(&text).unwrap_err().to_string();
        assert!(error.contains("cluster"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = NodeConfig::load(Path::new("/nowhere/node.toml")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/node.toml"), "{error}");
    }

    #[test]
    fn the_nodes_of_a_dev_cluster_agree_and_have_ports_of_their_own() {
        let configs = NodeConfig::dev_cluster(3, Path::new("/tmp/dev"), 7420).unwrap();
        assert_eq!(configs.len(), 3);
        assert!(configs.iter().all(|config| config.nodes == configs[0].nodes));
        let addresses: Vec<String> = configs[0]
            .nodes
            .iter()
            .flat_map(|node| [Some(&node.client), Some(&node.peer), node.http.as_ref()])
            .map(|address| address.unwrap().to_string())
            .collect();
        assert_eq!(
            addresses,
            [
                "127.0.0.1:7420",
                "127.0.0.1:7421",
                "127.0.0.1:7422",
                "127.0.0.1:7430",
                "127.0.0.1:7431",
                "127.0.0.1:7432",
                "127.0.0.1:7440",
                "127.0.0.1:7441",
                "127.0.0.1:7442"
            ]
        );
        assert_eq!(configs[2].data_dir, Path::new("/tmp/dev/node-3"));
    }

    #[test]
    fn a_dev_cluster_that_runs_out_of_ports_or_has_no_node_is_refused() {
        for (count, base_port) in [(3, 65_530), (0, 7420), (8, 7420)] {
            let cluster = NodeConfig::dev_cluster(count, Path::new("/tmp/dev"), base_port);
            assert!(matches!(cluster, Err(ConfigError::Check(_))), "{count} {base_port}");
        }
    }
}
