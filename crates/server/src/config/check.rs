//! What a configuration must satisfy beyond its syntax.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_proto::GROUPS_MAX;

use super::check_error::{CheckError, CheckErrors, in_range};
use super::{Address, NodeConfig, listen};

const NODES_MAX: usize = 7;
const CLUSTER_NAME_CHARS_MAX: usize = 64;

/// Of what depends on each other, the first fault is told.
pub(super) fn check(config: &NodeConfig) -> Result<(), CheckErrors> {
    let mut checks = vec![check_cluster_name(&config.cluster)];
    if config.data_dir.as_os_str().is_empty() {
        checks.push(Err(CheckError::NoDataDir));
    }
    checks.extend(check_numbers(config));
    checks.extend(check_tables(config));
    checks.extend([
        in_range("groups", u64::from(config.groups), 1..=u64::from(GROUPS_MAX)),
        check_node_count(config.nodes.len()),
        check_ids(config),
        check_joining(config),
        check_addresses(config),
    ]);
    CheckErrors::of(checks)
}

fn check_joining(config: &NodeConfig) -> Result<(), CheckError> {
    match config.nodes.len() {
        count if config.join && count != 1 => Err(CheckError::JoinsWithOthers { count }),
        _ => Ok(()),
    }
}

pub(super) fn check_node_count(count: usize) -> Result<(), CheckError> {
    match count {
        0 => Err(CheckError::NoNodes),
        1..=NODES_MAX => Ok(()),
        _ => Err(CheckError::TooManyNodes { count }),
    }
}

fn check_cluster_name(name: &str) -> Result<(), CheckError> {
    let valid = (1..=CLUSTER_NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    if valid { Ok(()) } else { Err(CheckError::ClusterName { name: name.to_owned() }) }
}

fn check_numbers(config: &NodeConfig) -> Vec<Result<(), CheckError>> {
    const MIB: u64 = 1024 * 1024;
    let mut checks = vec![
        in_range("tick_ms", config.tick_ms, 5..=1_000),
        in_range("election_ticks", config.election_ticks, 5..=200),
        in_range("heartbeat_ticks", config.heartbeat_ticks, 1..=60),
        in_range("grace_ms", config.grace_ms, 0..=60_000),
        in_range("snapshot_every_entries", config.snapshot_every_entries, 100..=100_000_000),
        in_range("snapshot_every_bytes", config.snapshot_every_bytes, MIB..=1024 * 1024 * MIB),
        in_range("events_kept", config.events_kept, 100..=10_000_000),
        in_range("segment_bytes", config.segment_bytes, MIB..=1024 * MIB),
    ];
    if let Some(audit) = &config.audit {
        checks.push(in_range("audit.file_bytes", audit.file_bytes, 4_096..=1024 * 1024 * MIB));
        checks.push(in_range("audit.files_kept", audit.files_kept, 0..=1_000));
    }
    let (heartbeat, election) = (config.heartbeat_ticks, config.election_ticks);
    if heartbeat.saturating_mul(3) > election {
        checks.push(Err(CheckError::HeartbeatTooSlow { heartbeat, election }));
    }
    checks
}

fn check_tables(config: &NodeConfig) -> Vec<Result<(), CheckError>> {
    let mut checks = Vec::new();
    if config.audit.as_ref().is_some_and(|audit| audit.file.as_os_str().is_empty()) {
        checks.push(Err(CheckError::NoAuditFile));
    }
    if config.tls.as_ref().is_some_and(|tls| tls.crl.is_some() && tls.client_ca.is_none()) {
        checks.push(Err(CheckError::CrlWithoutCa));
    }
    checks.extend(config.kafka.as_ref().map(|kafka| kafka.check()));
    checks.extend(config.tracing.as_ref().map(|tracing| tracing.check()));
    checks.extend([config.http.check(), config.connections.check()]);
    checks
}

fn check_ids(config: &NodeConfig) -> Result<(), CheckError> {
    let mut ids = BTreeSet::new();
    for node in &config.nodes {
        if node.id == 0 {
            return Err(CheckError::ZeroId);
        }
        if !ids.insert(node.id) {
            return Err(CheckError::DuplicateId { id: node.id });
        }
    }
    if !ids.contains(&config.node) {
        return Err(not_listed(config));
    }
    Ok(())
}

pub(super) fn not_listed(config: &NodeConfig) -> CheckError {
    let known = config.nodes.iter().map(|node| node.id.to_string()).collect::<Vec<_>>().join(", ");
    CheckError::NodeNotListed { node: config.node, known }
}

fn check_addresses(config: &NodeConfig) -> Result<(), CheckError> {
    let mut seen: BTreeMap<&Address, String> = BTreeMap::new();
    for node in &config.nodes {
        if node.id == config.node {
            listen::check(config, node)?;
        }
        let http = node.http.iter().map(|address| ("http", address));
        for (key, address) in
            [("client", &node.client), ("peer", &node.peer)].into_iter().chain(http)
        {
            let what = format!("{key} of node {}", node.id);
            if let Some(first) = seen.insert(address, what.clone()) {
                let address = address.to_string();
                return Err(CheckError::DuplicateAddress { first, second: what, address });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use holdfast_service::AuthMode;

    use super::*;
    use crate::config::{PeerTlsConfig, TlsConfig};

    fn example() -> NodeConfig {
        NodeConfig::from_toml(NodeConfig::EXAMPLE).unwrap()
    }

    /// What `change` makes of the example, in words.
    fn refusal(change: impl FnOnce(&mut NodeConfig)) -> String {
        let mut config = example();
        change(&mut config);
        check(&config).unwrap_err().to_string()
    }

    fn address(text: &str) -> Address {
        Address::new(text).unwrap()
    }

    #[test]
    fn cluster_names_are_short_and_plain() {
        for name in ["", "Prod", "a b", "a_b", "ü", &"x".repeat(65)] {
            assert!(refusal(|config| config.cluster = name.to_owned()).starts_with("cluster = "));
        }
        let mut config = example();
        config.cluster = "x".repeat(64);
        assert_eq!(check(&config), Ok(()));
    }

    #[test]
    fn every_number_has_a_range() {
        assert!(refusal(|config| config.tick_ms = 0).starts_with("tick_ms = 0"));
        assert!(refusal(|config| config.election_ticks = 0).starts_with("election_ticks = 0"));
        assert!(refusal(|config| config.heartbeat_ticks = 0).starts_with("heartbeat_ticks = 0"));
        assert!(refusal(|config| config.grace_ms = u64::MAX).starts_with("grace_ms"));
        assert!(refusal(|config| config.snapshot_every_entries = 1).starts_with("snapshot_every"));
        assert!(refusal(|config| config.snapshot_every_bytes = 1).starts_with("snapshot_every"));
        assert!(refusal(|config| config.events_kept = 1).starts_with("events_kept"));
        assert!(refusal(|config| config.segment_bytes = 512).starts_with("segment_bytes = 512"));
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let words = refusal(|config| {
            config.cluster = "Prod".to_owned();
            config.tick_ms = 0;
            config.nodes[1].peer = config.nodes[0].client.clone();
        });
        let lines: Vec<&str> = words.lines().collect();
        assert_eq!(lines.len(), 3, "{words}");
        assert!(lines[0].starts_with("cluster = ") && lines[1].starts_with("  also: tick_ms = 0"));
        assert!(lines[2].starts_with("  also: client of node 1 and peer of node 2"), "{words}");
    }

    #[test]
    fn a_heartbeat_comes_several_times_before_an_election() {
        assert!(refusal(|config| config.heartbeat_ticks = 4).contains("election_ticks = 10"));
    }

    #[test]
    fn a_name_for_browsers_is_a_name_and_nothing_else() {
        for host in ["", "http://locks.example", "locks.example:7422", "locks.example/", "a b"] {
            let words = refusal(|config| config.http.hosts = vec![host.to_owned()]);
            assert!(words.contains(&format!("'{host}'")), "{words}");
        }
        let mut config = example();
        config.http.hosts = ["locks.example", "locks", "*"].map(str::to_owned).to_vec();
        assert_eq!(check(&config), Ok(()));
    }

    #[test]
    fn one_to_seven_nodes_make_a_cluster() {
        assert!(refusal(|config| config.nodes.clear()).contains("no [[nodes]]"));
        let too_many = refusal(|config| {
            config.nodes = (1..=8).map(|_| config.nodes[0].clone()).collect();
        });
        assert!(too_many.contains("8 [[nodes]]"), "{too_many}");
        assert!((1..=7).all(|count| check_node_count(count).is_ok()));
    }

    #[test]
    fn ids_are_above_zero_and_used_once() {
        assert!(refusal(|config| config.nodes[1].id = 0).contains("id = 0"));
        assert!(refusal(|config| config.nodes[1].id = 1).contains("id = 1"));
    }

    #[test]
    fn this_node_is_one_of_the_nodes() {
        let words = refusal(|config| config.node = 9);
        assert!(words.contains("node = 9") && words.contains("1, 2, 3"), "{words}");
    }

    #[test]
    fn a_node_that_joins_lists_itself_alone() {
        assert!(refusal(|config| config.join = true).contains("itself alone"));
        let mut config = example();
        config.join = true;
        config.nodes.truncate(1);
        assert_eq!(check(&config), Ok(()));
    }

    #[test]
    fn one_to_64_groups_make_a_cluster_and_a_node_can_join_it() {
        for groups in [0, 65] {
            let words = refusal(|config| config.groups = groups);
            let expected =
                format!("groups = {groups} is out of range; choose a number from 1 to 64");
            assert_eq!(words, expected);
        }
        let mut config = example();
        (config.groups, config.auth.mode) = (64, AuthMode::Required);
        assert_eq!(check(&config), Ok(()));
        config.join = true;
        config.nodes.truncate(1);
        assert_eq!(check(&config), Ok(()));
    }

    #[test]
    fn no_address_is_used_twice() {
        let words = refusal(|config| config.nodes[1].peer = config.nodes[0].client.clone());
        assert_eq!(
            words,
            "client of node 1 and peer of node 2 have the same address 127.0.0.1:7420; give each \
             its own port"
        );
    }

    #[test]
    fn an_open_address_needs_the_word_insecure_or_tls_and_authentication() {
        let words = refusal(|config| config.nodes[0].http = Some(address("10.0.0.1:7422")));
        assert!(words.starts_with("http of node 1 = '10.0.0.1:7422'"), "{words}");

        let words = refusal(|config| config.nodes[0].client = address("0.0.0.0:7420"));
        assert!(words.starts_with("client of node 1 = '0.0.0.0:7420'"), "{words}");
        assert!(words.contains("insecure = true"), "{words}");

        let mut config = example();
        config.nodes[0].peer = address("10.0.0.1:7421");
        config.nodes[0].http = Some(address("10.0.0.1:7422"));
        config.insecure = true;
        assert_eq!(check(&config), Ok(()));

        config.insecure = false;
        let file = |name: &str| PathBuf::from(name);
        let (cert, key, ca) = (file("node.pem"), file("node-key.pem"), file("ca.pem"));
        let missing = |config: &NodeConfig| check(config).unwrap_err().to_string();
        for (place, word) in ["[tls]", "[peer_tls]", "[auth] mode"].into_iter().enumerate() {
            let words = missing(&config);
            assert!(words.contains(word), "{words}");
            match place {
                0 => {
                    let (cert, key) = (cert.clone(), key.clone());
                    config.tls = Some(TlsConfig { cert, key, client_ca: None, crl: None });
                }
                1 => {
                    let (cert, key, ca) = (cert.clone(), key.clone(), ca.clone());
                    config.peer_tls = Some(PeerTlsConfig { cert, key, ca, crl: None });
                }
                _ => config.auth.mode = AuthMode::Permissive,
            }
        }
        assert!(missing(&config).contains("Write [auth] mode = \"required\" into"));
        config.auth.mode = AuthMode::Required;
        assert_eq!(check(&config), Ok(()));
    }
}
