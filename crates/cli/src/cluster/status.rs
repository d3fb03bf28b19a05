//! `holdfast cluster status`: the nodes, who leads, how far each replica is.
//!
//! Only the leader knows who lags, and only each node itself what it has applied: the leader is asked
//! first, then all nodes.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::UnavailableCause;
use holdfast_client::unary::{CallError, Unary};
use holdfast_proto::v1;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::one_shot;
use crate::output::{self, Show};
use crate::text::{group_numbers, table};
use crate::token;

/// A node needs a second or two to find out that there is no leader.
const CHECK_PATIENCE: Duration = Duration::from_secs(3);

/// Shows the nodes, the leader, and how far each replica is.
///
/// Any node answers, also without a quorum. Then it is that node's own view. If that node knows no leader, the command
/// asks the other nodes.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 there is a leader; 69 there is none, or no node answers.
With --check also 75: there is a leader, but it does not hear from a voter. If a read fails
though there is a leader, the command ends with the error of that read.

Examples:
  holdfast cluster status
  holdfast cluster status --output json
  holdfast cluster status --check || echo 'a node does not answer'")]
pub(crate) struct StatusArgs {
    /// Prints one line for scripts: `ok`, `degraded` or `no_leader`, and the reason. `ok` needs a read that the leader
    /// answers.
    #[arg(long)]
    check: bool,
}

/// What `--check` prints.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Health {
    /// ok, degraded or no_leader.
    state: &'static str,
    /// Of group 1. Null if none is known.
    leader: Option<u64>,
    groups: usize,
    /// As far as the node which answered knows. Without a read that is answered, there may be more.
    groups_without_leader: Vec<u32>,
    voters: usize,
    /// Those that the node which answered cannot reach.
    unreachable_voters: Vec<u64>,
}

impl Show for Health {
    fn to_table(&self) -> String {
        let Health { state, voters, unreachable_voters, .. } = self;
        let reachable = voters - unreachable_voters.len();
        let leader = match (self.leader, self.groups, self.groups_without_leader.as_slice()) {
            (Some(id), 0 | 1, _) => format!("node {id} leads"),
            (Some(_), groups, _) => format!("all {groups} groups have leaders"),
            (None, 0 | 1, _) => "no leader answers".to_owned(),
            (None, groups, []) => format!("not all leaders of the {groups} groups answer"),
            (None, _, without) => format!("no leader in {}", group_numbers(without)),
        };
        let mut line = format!("{state}: {leader}, {reachable} of {voters} voters reachable");
        if !unreachable_voters.is_empty() {
            let ids: Vec<String> = unreachable_voters.iter().map(u64::to_string).collect();
            line += &format!("; not node {}", ids.join(", "));
        }
        line + "\n"
    }
}

impl Health {
    /// 75: what needs all nodes may succeed later.
    fn code(&self) -> ExitCode {
        match self.state {
            "ok" => ExitCode::SUCCESS,
            "degraded" => Code::Busy.into(),
            _ => Code::Unavailable.into(),
        }
    }
}

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
    /// voter, learner, entering or leaving.
    role: &'static str,
    /// A learner that becomes a voter once it has caught up.
    becomes_voter: bool,
    /// The node whose place it takes.
    replaces: Option<u64>,
    /// Empty until the node was first met.
    directory_fingerprint: String,
    /// What the node itself says of each group; empty if it says nothing.
    own_view: Vec<OwnView>,
}

#[derive(Debug, Serialize)]
struct OwnView {
    group: u32,
    term: u64,
    applied_index: u64,
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
    #[serde(serialize_with = "token::as_text")]
    last_token: u64,
    /// Of the rules that the lock table follows; null if an older node answers, which does not say.
    rules_version: Option<u32>,
    /// Empty unless it was asked for.
    digest: String,
    replicas: Vec<Replica>,
    /// Only with several groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<GroupMember>,
}

#[derive(Debug, Serialize)]
struct GroupMember {
    node: u64,
    role: &'static str,
}

#[derive(Debug, Serialize)]
struct Replica {
    node: u64,
    matched_index: u64,
    /// Null if the leader does not hear from the node: it may have lost what it had.
    lag: Option<u64>,
}

impl From<v1::ClusterStatusResponse> for Cluster {
    fn from(answer: v1::ClusterStatusResponse) -> Cluster {
        let groups = answer.groups.iter().map(|group| Group::of(group, &answer)).collect();
        Cluster {
            cluster: answer.cluster,
            version: answer.version,
            answered_by: answer.answered_by,
            nodes: answer.nodes.into_iter().map(Node::from).collect(),
            groups,
        }
    }
}

impl From<v1::NodeStatus> for Node {
    fn from(node: v1::NodeStatus) -> Node {
        let role = role_text(node.role());
        Node {
            id: node.id,
            client_address: node.client_address,
            peer_address: node.peer_address,
            reachable: node.reachable,
            role,
            becomes_voter: node.becomes_voter,
            replaces: (node.replaces != 0).then_some(node.replaces),
            directory_fingerprint: node.directory_fingerprint,
            own_view: Vec::new(),
        }
    }
}

pub(crate) fn role_text(role: v1::NodeRole) -> &'static str {
    match role {
        // Older nodes do not say, and know nothing but voters.
        v1::NodeRole::Voter | v1::NodeRole::Unspecified => "voter",
        v1::NodeRole::Learner => "learner",
        v1::NodeRole::Entering => "entering",
        v1::NodeRole::Leaving => "leaving",
    }
}

/// By how much the log of a node is behind, if the one that answers is in touch with it.
pub(crate) fn known_lag(
    replica: &v1::ReplicaProgress,
    view: &v1::ClusterStatusResponse,
) -> Option<u64> {
    let is_heard = |node: &v1::NodeStatus| node.id == replica.node && node.reachable;
    let is_itself = replica.node == view.answered_by;
    let is_known = replica.matched_index > 0 && view.nodes.iter().any(is_heard);
    (is_itself || is_known).then_some(replica.lag)
}

impl Group {
    fn of(group: &v1::GroupStatus, view: &v1::ClusterStatusResponse) -> Group {
        let replicas = group.replicas.iter().map(|replica| Replica {
            node: replica.node,
            matched_index: replica.matched_index,
            lag: known_lag(replica, view),
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
            rules_version: (group.rules_version != 0).then_some(group.rules_version),
            digest: group.digest.clone(),
            replicas: replicas.collect(),
            members: group
                .members
                .iter()
                .map(|member| GroupMember { node: member.node, role: role_text(member.role()) })
                .collect(),
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
        let headers = ["NODE", "CLIENTS", "PEERS", "REACHABLE", "ROLE", "TERM", "APPLIED", "LAG"];
        text += &table(&headers, &nodes);
        let groups: Vec<Vec<String>> = self.groups.iter().map(Group::to_row).collect();
        let headers =
            ["GROUP", "LEADER", "TERM", "COMMITTED", "APPLIED", "LOCKS", "SESSIONS", "RULES"];
        text + "\n" + &table(&headers, &groups)
    }
}

impl Cluster {
    /// The line that an operator has to see first.
    fn no_leader(&self) -> Option<String> {
        if self.has_leader() {
            return None;
        }
        let all = self.voters().count();
        let reachable = self.voters().filter(|node| self.is_reachable(node)).count();
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

    /// In every group.
    fn has_leader(&self) -> bool {
        !self.groups.is_empty() && self.groups.iter().all(|group| group.leader.is_some())
    }

    fn voters(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.role != "learner")
    }

    /// `is_served`: a read was answered, so there is a leader with a quorum.
    fn health(&self, is_served: bool) -> Health {
        let unreachable = self.voters().filter(|node| !self.is_in_touch(node));
        let unreachable_voters: Vec<u64> = unreachable.map(|node| node.id).collect();
        let has_leader = is_served && self.has_leader();
        let state = match (has_leader, unreachable_voters.is_empty()) {
            (false, _) => "no_leader",
            (true, false) => "degraded",
            (true, true) => "ok",
        };
        let leader = self.groups.first().and_then(|group| group.leader).filter(|_| has_leader);
        let without = self.groups.iter().filter(|group| group.leader.is_none());
        Health {
            state,
            leader,
            groups: self.groups.len(),
            groups_without_leader: without.map(|group| group.group).collect(),
            voters: self.voters().count(),
            unreachable_voters,
        }
    }

    fn is_reachable(&self, node: &Node) -> bool {
        node.reachable || node.id == self.answered_by
    }

    /// Whether the leader, if it answered itself, has heard from the node in its term.
    fn is_in_touch(&self, node: &Node) -> bool {
        let mut replicas = self.groups.iter().flat_map(|group| &group.replicas);
        let is_unheard = replicas.any(|replica| replica.node == node.id && replica.lag.is_none());
        self.is_reachable(node) && !is_unheard
    }

    /// Where the role differs from that in the root group, it is told with the group.
    fn role_of(&self, node: &Node) -> String {
        let mut roles = self.role_in_root_group(node);
        for group in &self.groups {
            let of_node = |member: &&GroupMember| member.node == node.id;
            let role = group.members.iter().find(of_node).map_or("none", |member| member.role);
            if !group.members.is_empty() && role != node.role {
                roles += &format!("; {role} in group {}", group.group);
            }
        }
        roles
    }

    fn role_in_root_group(&self, node: &Node) -> String {
        let led = self.groups.iter().filter(|group| group.leader == Some(node.id));
        let leads: Vec<String> = led.map(|group| group.group.to_string()).collect();
        if !leads.is_empty() {
            match self.groups.len() {
                1 => "leader".to_owned(),
                _ => format!("leader of group {}", leads.join(",")),
            }
        } else if let Some(replaced) = node.replaces.filter(|_| node.role == "learner") {
            format!("learner, replaces {replaced}")
        } else if node.role != "voter" {
            node.role.to_owned()
        } else if self.is_reachable(node) {
            "follower".to_owned()
        } else {
            "unknown".to_owned()
        }
    }

    fn node_row(&self, node: &Node) -> Vec<String> {
        let replicas = self.groups.iter().flat_map(|group| &group.replicas);
        let lags: Vec<Option<u64>> =
            replicas.filter(|replica| replica.node == node.id).map(|replica| replica.lag).collect();
        let lag = match lags.iter().copied().collect::<Option<Vec<u64>>>() {
            None => "unknown".to_owned(),
            Some(known) => known.iter().max().map_or("-".to_owned(), u64::to_string),
        };
        let of_all = |number: fn(&OwnView) -> u64| {
            let numbers: Vec<String> =
                node.own_view.iter().map(|view| number(view).to_string()).collect();
            if numbers.is_empty() { "-".to_owned() } else { numbers.join(",") }
        };
        vec![
            node.id.to_string(),
            node.client_address.clone(),
            node.peer_address.clone(),
            if self.is_reachable(node) { "yes" } else { "no" }.to_owned(),
            self.role_of(node),
            of_all(|view| view.term),
            of_all(|view| view.applied_index),
            lag,
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
            self.rules_version.map_or("-".to_owned(), |version| version.to_string()),
        ]
    }
}

pub(super) async fn run(args: StatusArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    if args.check {
        return check(&calls, global).await;
    }
    let mut answer = calls.cluster_status().await?;
    if knows_no_leader(&answer)
        && let Some(of_leader) = view_of_leader(&calls, &answer).await
    {
        answer = of_leader;
    }
    let mut cluster = Cluster::from(answer);
    let mut views = JoinSet::new();
    for (place, node) in cluster.nodes.iter().enumerate() {
        let (calls, address) = (calls.clone(), node.client_address.clone());
        views.spawn(async move { (place, calls.own_view(&address).await) });
    }
    while let Some(Ok((place, view))) = views.join_next().await {
        let groups = view.map(|view| view.groups).unwrap_or_default();
        if let Some(node) = cluster.nodes.get_mut(place) {
            node.own_view = groups.into_iter().map(OwnView::from).collect();
        }
    }
    let code = output::show(global.output, &cluster)?;
    Ok(if cluster.has_leader() { code } else { Code::Unavailable.into() })
}

/// A node may name a leader that stopped a moment ago. So a read has to be answered first, which takes a leader and a
/// quorum. Then the leader's own view counts, if the leader can be asked: it knows which voters answer it.
async fn check(calls: &Unary, global: &Global) -> Result<ExitCode, Problem> {
    let read = calls.clone().timeout(CHECK_PATIENCE).freezes().await;
    let mut answer = calls.cluster_status().await?;
    let of_leader = view_of_leader(calls, &answer).await;
    let is_served = is_served(read.map(|_| ()), of_leader.is_some())?;
    if let Some(of_leader) = of_leader {
        answer = of_leader;
    }
    let health = Cluster::from(answer).health(is_served);
    output::show(global.output, &health)?;
    Ok(health.code())
}

/// Fails if a read failed for another reason than the lack of a leader: a refusal, or a leader that answers for itself and
/// is overloaded or slow.
fn is_served(read: Result<(), CallError>, leader_answers: bool) -> Result<bool, CallError> {
    match read {
        Ok(()) => Ok(true),
        Err(CallError::Unavailable(unavailable))
            if !leader_answers || unavailable.cause != UnavailableCause::Other =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn knows_no_leader(view: &v1::ClusterStatusResponse) -> bool {
    view.groups.iter().any(|group| group.leader == 0)
}

/// The node that was asked may have just started, or may be cut off from the others.
async fn view_of_leader(
    calls: &Unary,
    answer: &v1::ClusterStatusResponse,
) -> Option<v1::ClusterStatusResponse> {
    let mut views = JoinSet::new();
    for node in &answer.nodes {
        let (calls, address) = (calls.clone(), node.client_address.clone());
        views.spawn(async move { calls.own_view(&address).await });
    }
    let leads = |view: &v1::ClusterStatusResponse| {
        view.groups.iter().all(|group| group.leader == view.answered_by)
    };
    let views = views.join_all().await.into_iter().flatten();
    // One that was frozen may believe that it still leads.
    views.filter(leads).max_by_key(|view| view.groups.iter().map(|group| group.term).max())
}

impl From<v1::GroupStatus> for OwnView {
    fn from(group: v1::GroupStatus) -> OwnView {
        OwnView { group: group.group, term: group.term, applied_index: group.applied_index }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_client::{Rejection, Unavailable};

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
    fn a_check_tells_a_cluster_that_serves_from_one_that_lacks_a_voter_or_a_leader() {
        let lines = [
            (cluster(2, [false, true, true]), "ok: node 2 leads, 3 of 3 voters reachable\n"),
            (
                cluster(1, [false, true, false]),
                "degraded: node 1 leads, 2 of 3 voters reachable; not node 3\n",
            ),
            (
                cluster(0, [false; 3]),
                "no_leader: no leader answers, 1 of 3 voters reachable; not node 2, 3\n",
            ),
        ];
        for (cluster, line) in lines {
            assert_eq!(cluster.health(true).to_table(), line);
        }
        let stopped = cluster(2, [false, true, true]).health(false).to_table();
        assert_eq!(stopped, "no_leader: no leader answers, 3 of 3 voters reachable\n");
    }

    #[test]
    fn a_check_of_several_groups_names_those_without_a_leader() {
        let mut several = cluster(2, [false, true, true]);
        several.groups.push(Group::of(
            &v1::GroupStatus { group: 2, leader: 3, ..Default::default() },
            &v1::ClusterStatusResponse::default(),
        ));
        let line = several.health(true).to_table();
        assert_eq!(line, "ok: all 2 groups have leaders, 3 of 3 voters reachable\n");
        let line = several.health(false).to_table();
        let reachable = "3 of 3 voters reachable\n";
        assert_eq!(line, format!("no_leader: not all leaders of the 2 groups answer, {reachable}"));
        several.groups[1].leader = None;
        let line = several.health(true).to_table();
        assert_eq!(line, format!("no_leader: no leader in group 2, {reachable}"));
    }

    #[test]
    fn a_read_that_fails_though_there_is_a_leader_is_told_as_what_it_is() {
        let unavailable = |cause| {
            let message = "127.0.0.1:7420: the node has too many requests".to_owned();
            CallError::Unavailable(Unavailable { message, cause, may_have_happened: false })
        };
        let overloaded = unavailable(UnavailableCause::Other);
        assert_eq!(is_served(Ok(()), true), Ok(true));
        assert_eq!(is_served(Err(overloaded.clone()), true), Err(overloaded.clone()));
        assert_eq!(is_served(Err(overloaded), false), Ok(false));
        assert_eq!(is_served(Err(unavailable(UnavailableCause::NoLeader)), true), Ok(false));
        let refused = CallError::Rejected(Rejection {
            reason: v1::Reason::Overloaded,
            message: "refused".to_owned(),
            may_have_happened: false,
            retry_after: None,
            map_epoch: 0,
        });
        assert_eq!(is_served(Err(refused.clone()), false), Err(refused));
    }

    #[test]
    fn the_role_of_a_node_that_cannot_be_reached_is_unknown() {
        let cluster = cluster(2, [false, true, false]);
        let roles: Vec<_> = cluster.nodes.iter().map(|node| cluster.role_of(node)).collect();
        assert_eq!(roles, ["follower", "leader", "unknown"]);
    }

    #[test]
    fn the_role_in_a_group_that_has_yet_to_follow_is_told() {
        let member = |role: v1::NodeRole| v1::GroupMember { node: 1, role: role.into() };
        let group = |group, members| v1::GroupStatus { group, members, ..Default::default() };
        let cluster = Cluster::from(v1::ClusterStatusResponse {
            answered_by: 1,
            nodes: vec![v1::NodeStatus { id: 1, ..Default::default() }],
            groups: vec![
                group(1, vec![member(v1::NodeRole::Voter)]),
                group(2, vec![member(v1::NodeRole::Learner)]),
                group(3, vec![v1::GroupMember { node: 2, ..member(v1::NodeRole::Voter) }]),
            ],
            ..Default::default()
        });
        let role = cluster.role_of(&cluster.nodes[0]);
        assert_eq!(role, "follower; learner in group 2; none in group 3");
    }

    #[test]
    fn the_lag_of_a_node_that_is_not_heard_of_is_unknown() {
        let node =
            |id: u64, reachable: bool| v1::NodeStatus { id, reachable, ..Default::default() };
        let replica =
            |node: u64, matched_index| v1::ReplicaProgress { node, matched_index, lag: node - 1 };
        let group = v1::GroupStatus {
            leader: 1,
            replicas: vec![replica(1, 9), replica(2, 8), replica(3, 7), replica(4, 0)],
            ..Default::default()
        };
        let cluster = Cluster::from(v1::ClusterStatusResponse {
            answered_by: 1,
            nodes: vec![node(1, false), node(2, true), node(3, false), node(4, true)],
            groups: vec![group],
            ..Default::default()
        });
        let shown = cluster.nodes.iter().filter_map(|node| cluster.node_row(node).pop());
        assert_eq!(shown.collect::<Vec<_>>(), ["0", "1", "unknown", "unknown"]);
        assert_eq!(cluster.groups[0].replicas[2].lag, None);
    }
}
