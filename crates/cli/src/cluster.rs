//! `holdfast cluster status`: the nodes, who leads, how far each replica is.

use std::process::ExitCode;
use std::time::Duration;

use holdfast_client::{Unavailable, UnavailableCause};
use holdfast_proto::v1;
use serde::Serialize;

use crate::cli::Global;
use crate::exit::Problem;
use crate::one_shot;
use crate::output::{self, Show, table};

/// Whoever has waited in vain does not wait long to hear why.
const SECOND_LOOK_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize)]
struct Cluster {
    cluster: String,
    version: String,
    answered_by: u64,
    nodes: Vec<Node>,
    groups: Vec<Group>,
}

#[derive(Debug, Serialize)]
struct Node {
    id: u64,
    client_address: String,
    peer_address: String,
    reachable: bool,
}

#[derive(Debug, Serialize)]
struct Group {
    group: u32,
    /// Null if none is known.
    leader: Option<u64>,
    term: u64,
    commit_index: u64,
    applied_index: u64,
    logical_time_ms: u64,
    locks: u64,
    sessions: u64,
    last_token: u64,
    /// Empty unless it was asked for.
    digest: String,
    replicas: Vec<Replica>,
}

#[derive(Debug, Serialize)]
struct Replica {
    node: u64,
    matched_index: u64,
    lag: u64,
}

impl From<v1::ClusterStatusResponse> for Cluster {
    fn from(answer: v1::ClusterStatusResponse) -> Cluster {
        Cluster {
            cluster: answer.cluster,
            version: answer.version,
            answered_by: answer.answered_by,
            nodes: answer.nodes.into_iter().map(Node::from).collect(),
            groups: answer.groups.into_iter().map(Group::from).collect(),
        }
    }
}

impl From<v1::NodeStatus> for Node {
    fn from(node: v1::NodeStatus) -> Node {
        let v1::NodeStatus { id, client_address, peer_address, reachable } = node;
        Node { id, client_address, peer_address, reachable }
    }
}

impl From<v1::GroupStatus> for Group {
    fn from(group: v1::GroupStatus) -> Group {
        let replicas = group.replicas.into_iter().map(|replica| Replica {
            node: replica.node,
            matched_index: replica.matched_index,
            lag: replica.lag,
        });
        Group {
            group: group.group,
            leader: (group.leader != 0).then_some(group.leader),
            term: group.term,
            commit_index: group.commit_index,
            applied_index: group.applied_index,
            logical_time_ms: group.logical_time_ms,
            locks: group.locks,
            sessions: group.sessions,
            last_token: group.last_token,
            digest: group.digest,
            replicas: replicas.collect(),
        }
    }
}

impl Show for Cluster {
    fn to_table(&self) -> String {
        let mut text = self.no_leader().unwrap_or_default();
        text += &format!(
            "cluster {}, version {}, as node {} sees it\n\n",
            self.cluster, self.version, self.answered_by
        );
        let nodes: Vec<Vec<String>> = self.nodes.iter().map(|node| self.node_row(node)).collect();
        text += &table(&["NODE", "CLIENTS", "PEERS", "REACHABLE", "ROLE", "LAG"], &nodes);
        let groups: Vec<Vec<String>> = self.groups.iter().map(Group::to_row).collect();
        let headers = ["GROUP", "LEADER", "TERM", "COMMITTED", "APPLIED", "LOCKS", "SESSIONS"];
        text + "\n" + &table(&headers, &groups)
    }
}

impl Cluster {
    /// The line that whoever looks after the cluster has to see first.
    fn no_leader(&self) -> Option<String> {
        if self.groups.iter().all(|group| group.leader.is_some()) {
            return None;
        }
        let all = self.nodes.len();
        let reachable = self.nodes.iter().filter(|node| self.is_reachable(node)).count();
        let needed = all / 2 + 1;
        let then = if reachable < needed {
            "no lock can be granted"
        } else {
            "no lock can be granted until one is elected"
        };
        Some(format!(
            "NO LEADER: {reachable} of {all} nodes reachable, {needed} needed; {then}\n\n"
        ))
    }

    fn is_reachable(&self, node: &Node) -> bool {
        node.reachable || node.id == self.answered_by
    }

    fn role_of(&self, node: &Node) -> String {
        let led = self.groups.iter().filter(|group| group.leader == Some(node.id));
        let leads: Vec<String> = led.map(|group| group.group.to_string()).collect();
        if !leads.is_empty() {
            format!("leader of group {}", leads.join(","))
        } else if self.is_reachable(node) {
            "follower".to_owned()
        } else {
            "unknown".to_owned()
        }
    }

    fn node_row(&self, node: &Node) -> Vec<String> {
        let replicas = self.groups.iter().flat_map(|group| &group.replicas);
        let lag = replicas.filter(|replica| replica.node == node.id).map(|replica| replica.lag);
        vec![
            node.id.to_string(),
            node.client_address.clone(),
            node.peer_address.clone(),
            if self.is_reachable(node) { "yes" } else { "no" }.to_owned(),
            self.role_of(node),
            lag.max().map_or("-".to_owned(), |lag| lag.to_string()),
        ]
    }
}

impl Group {
    fn to_row(&self) -> Vec<String> {
        vec![
            self.group.to_string(),
            self.leader.map_or("none".to_owned(), |leader| leader.to_string()),
            self.term.to_string(),
            self.commit_index.to_string(),
            self.applied_index.to_string(),
            self.locks.to_string(),
            self.sessions.to_string(),
        ]
    }
}

/// A node without a leader keeps a stream waiting, and says why only to somebody who asks.
pub(crate) async fn why_unavailable(mut unavailable: Unavailable, global: &Global) -> Problem {
    if unavailable.cause == UnavailableCause::Other
        && let Ok(calls) = one_shot::calls(global)
        && let Ok(answer) = calls.timeout(SECOND_LOOK_PATIENCE).cluster_status().await
        && answer.groups.iter().any(|group| group.leader == 0)
    {
        unavailable.cause = UnavailableCause::NoLeader;
    }
    Problem::from(&unavailable)
}

pub(crate) async fn status(global: &Global) -> Result<ExitCode, Problem> {
    let answer = one_shot::calls(global)?.cluster_status().await?;
    output::show(global.output, &Cluster::from(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(leader: u64, reachable: [bool; 3]) -> Cluster {
        let node = |id: u64| v1::NodeStatus {
            id,
            reachable: reachable[id as usize - 1],
            ..Default::default()
        };
        Cluster::from(v1::ClusterStatusResponse {
            answered_by: 1,
            nodes: (1..=3).map(node).collect(),
            groups: vec![v1::GroupStatus { leader, ..Default::default() }],
            ..Default::default()
        })
    }

    #[test]
    fn a_cluster_without_a_leader_says_so_first() {
        let alone = cluster(0, [false; 3]).to_table();
        assert!(alone.starts_with("NO LEADER: 1 of 3 nodes reachable, 2 needed"), "{alone}");
        assert!(alone.contains("none"), "{alone}");
        let electing = cluster(0, [false, true, true]).to_table();
        assert!(electing.contains("until one is elected"), "{electing}");
        assert!(!cluster(2, [false, true, true]).to_table().contains("NO LEADER"));
    }

    #[test]
    fn the_role_of_a_node_that_cannot_be_reached_is_unknown() {
        let cluster = cluster(2, [false, true, false]);
        let roles: Vec<_> = cluster.nodes.iter().map(|node| cluster.role_of(node)).collect();
        assert_eq!(roles, ["follower", "leader of group 0", "unknown"]);
    }
}
