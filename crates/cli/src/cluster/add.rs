//! `holdfast cluster add`: one more node, which learns first and votes once it has caught up.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdfast_client::unary::Unary;
use holdfast_proto::v1;
use holdfast_server::{Address, NodeConfig};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::status::{known_lag, role_text};
use crate::duration;
use crate::exit::{Code, Problem};
use crate::global::{Format, Global};
use crate::one_shot;
use crate::output::{self, Show};
use crate::text::group_numbers;

/// How often it is asked whether the node votes.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Adds a node to the cluster.
///
/// The node becomes a learner at once: it gets the data, and has no vote. Prints the configuration that the node needs.
/// Start the node with it; the leader connects to it. When it has caught up, the leader makes it a voter. The command
/// waits for that and prints the progress. If you end the command earlier, the cluster still completes the change.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the node is a voter (with --learner: a learner); 64 the id or an address is in use or
invalid; 75 another change is under way, or the node has not caught up in time.

Examples:
  holdfast cluster add --id 4 --peer-address 10.0.0.4:7421 --client-address 10.0.0.4:7420 \\
    --http-address 10.0.0.4:7422 > node-4.toml
  holdfast cluster add --id 4 --peer-address n4:7421 --client-address n4:7420 \\
    --http-address n4:7422 --listen-host 0.0.0.0 > node-4.toml
  holdfast cluster add --id 9 --peer-address n9:7421 --client-address n9:7420 \\
    --http-address n9:7422 --learner"
)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    new: NewNode,
    /// It stays a learner; see `holdfast cluster promote`.
    #[arg(long)]
    learner: bool,
}

/// The node that comes.
#[derive(Debug, Args)]
pub(super) struct NewNode {
    /// Its id: higher than that of any node that ever was in the cluster.
    #[arg(long, value_name = "ID", value_parser = node_id)]
    id: u64,
    /// Where the other nodes reach it, host:port.
    #[arg(long, value_name = "H:P")]
    peer_address: Address,
    /// Where clients reach it, host:port.
    #[arg(long, value_name = "H:P")]
    client_address: Address,
    /// Where probes and scrapers reach it, host:port; without it the node has no HTTP port.
    #[arg(long, value_name = "H:P")]
    http_address: Option<Address>,
    /// The host on which it listens, if that is not the host by which it is reached: 0.0.0.0 in a container or behind NAT.
    #[arg(long, value_name = "HOST", value_parser = listen_host)]
    listen_host: Option<String>,
    /// Its data directory, for the configuration that is printed.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/holdfast")]
    data_dir: String,
    /// How long to wait until it votes; 0s does not wait.
    #[arg(long, value_name = "D", default_value = "10m", value_parser = duration::parse)]
    timeout: Duration,
}

pub(super) fn node_id(text: &str) -> Result<u64, &'static str> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a node id is a whole number from 1 on, e.g. 4"),
        Ok(id) => Ok(id),
    }
}

fn listen_host(text: &str) -> Result<String, String> {
    let address = format!("{text}:1");
    Address::new(&address).map(|_| text.to_owned()).map_err(|_| {
        "a host is a name or an IP address without a port, such as 0.0.0.0 or [::]".to_owned()
    })
}

/// The line of the configuration of a node that other machines can reach without TLS.
const INSECURE: &str = "insecure = true   # every machine that reaches it may do everything\n";

#[derive(Debug, Serialize)]
struct Added {
    id: u64,
    role: &'static str,
    replaces: Option<u64>,
    config: String,
}

impl Show for Added {
    /// The configuration was shown when it was needed.
    fn to_table(&self) -> String {
        String::new()
    }
}

pub(super) async fn run(args: AddArgs, global: &Global) -> Result<ExitCode, Problem> {
    bring_in(args.new, args.learner, None, global).await
}

pub(super) async fn bring_in(
    new: NewNode,
    stays_learner: bool,
    replaces: Option<u64>,
    global: &Global,
) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let answer = calls
        .add_node(v1::AddNodeRequest {
            node: new.id,
            peer_address: new.peer_address.to_string(),
            client_address: new.client_address.to_string(),
            stays_learner,
            replaces: replaces.unwrap_or(0),
        })
        .await?;
    let config = configuration(&answer, &new, global.tls.is_some());
    let where_it_is = if global.output == Format::Table { "below" } else { "of the output" };
    output::message(&format!(
        "node {} is in the cluster; start it with the configuration {where_it_is}, which goes to its machine:\n  \
         holdfast server --config node-{}.toml",
        new.id, new.id
    ));
    if config.contains(INSECURE) {
        output::message(
            "it has `insecure = true`, because this cluster has no TLS: every machine that reaches the node may do \
             everything. See docs/security.md",
        );
    }
    if global.output == Format::Table {
        output::data_to_stdout(&config)?;
    }
    if !answer.groups_behind.is_empty() {
        output::message(&format!(
            "not yet in {}, which will add it as soon as they can; see `holdfast cluster status`",
            group_numbers(&answer.groups_behind)
        ));
    }
    let role = if new.timeout.is_zero() {
        Ok("learner")
    } else {
        wait_for_role(&calls, &new, stays_learner).await
    };
    // Its configuration is needed also if it was not waited for to the end.
    let added = Added { id: new.id, role: role.as_ref().unwrap_or(&"learner"), replaces, config };
    let code = output::show(global.output, &added)?;
    role.map(|_| code)
}

/// Until it votes; a node that is to stay a learner is waited for until it has the data. In all groups.
async fn wait_for_role(
    calls: &Unary,
    new: &NewNode,
    stays_learner: bool,
) -> Result<&'static str, Problem> {
    let give_up = Instant::now() + new.timeout;
    let mut said = String::new();
    loop {
        let status = calls.cluster_status().await?;
        let Some(node) = status.nodes.iter().find(|node| node.id == new.id) else {
            let words = format!("node {} was removed from the cluster meanwhile", new.id);
            return Err(Problem::new(Code::Unavailable, words));
        };
        let lag = lag_in_all_groups(calls, &status, new.id).await;
        let (role, votes) = (node.role(), votes(&status, new.id));
        let has_vote = role == v1::NodeRole::Voter && votes.is_in_all();
        let has_data = node.reachable && lag == Some(0);
        if has_vote || (stays_learner && has_data) {
            output::message(&format!("node {} is a {}", new.id, role_text(role)));
            return Ok(role_text(role));
        }
        let words = match (node.reachable, lag) {
            (false, _) => format!("waiting for node {} to start at {}", new.id, new.peer_address),
            (true, Some(lag)) => format!("node {} learns: it lags by {lag} entries", new.id),
            (true, None) => format!("node {} learns", new.id),
        };
        let words = words + &votes.to_words();
        if words != said {
            output::message(&words);
            said = words;
        }
        if Instant::now() >= give_up {
            let words = format!(
                "node {} is still a {}{}; it goes on without this command, see `holdfast cluster status`",
                new.id,
                if has_vote { role_text(role) } else { "learner" },
                votes.to_words()
            );
            return Err(Problem::new(Code::Busy, words));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// In how many groups a node votes. Of a single group the answer says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Votes {
    count: usize,
    groups: usize,
}

impl Votes {
    fn is_in_all(self) -> bool {
        self.count == self.groups
    }

    fn to_words(self) -> String {
        match self.groups {
            0 => String::new(),
            groups => format!("; it votes in {} of {groups} groups", self.count),
        }
    }
}

fn votes(status: &v1::ClusterStatusResponse, node: u64) -> Votes {
    // Only with several groups are their members told. One whose members the node does not know yet has no vote for it.
    let are_told = status.groups.iter().any(|group| !group.members.is_empty());
    let groups = status.groups.iter().filter(|_| are_told);
    let votes = |group: &&v1::GroupStatus| {
        let mut members = group.members.iter();
        members.any(|member| member.node == node && member.role() == v1::NodeRole::Voter)
    };
    Votes { count: groups.clone().filter(votes).count(), groups: groups.count() }
}

/// By how much the node is behind in the group in which it is behind most. Only the leader of a group knows. None if one
/// of them does not say, or has sent the node nothing yet: the first entry of a restored cluster has a high index.
async fn lag_in_all_groups(
    calls: &Unary,
    status: &v1::ClusterStatusResponse,
    node: u64,
) -> Option<u64> {
    let mut views = BTreeMap::new();
    let mut most = None;
    for group in &status.groups {
        let leader = match group.replicas.is_empty() {
            false => status.answered_by,
            true => group.leader,
        };
        if leader != status.answered_by && !views.contains_key(&leader) {
            let address = status.nodes.iter().find(|node| node.id == leader)?;
            views.insert(leader, calls.own_view(&address.client_address).await?);
        }
        let view = views.get(&leader).unwrap_or(status);
        let mut groups = view.groups.iter();
        let replicas = &groups.find(|other| other.group == group.group)?.replicas;
        let replica = replicas.iter().find(|replica| replica.node == node)?;
        most = most.max(Some(known_lag(replica, view)?));
    }
    most
}

/// A cluster that is reached with TLS wants nodes that have certificates.
fn configuration(answer: &v1::AddNodeResponse, new: &NewNode, has_tls: bool) -> String {
    let addresses = [&new.peer_address, &new.client_address].into_iter().chain(&new.http_address);
    let is_open = match &new.listen_host {
        Some(host) => !Address::new(&format!("{host}:1")).is_ok_and(|host| host.is_loopback()),
        None => !addresses.into_iter().all(Address::is_loopback),
    };
    let http = new.http_address.as_ref().map(|address| format!("http = \"{address}\"\n"));
    let http = http.unwrap_or_default();
    let insecure = match is_open && !has_tls {
        true => INSECURE,
        false => "",
    };
    let secured = if has_tls { secured_tables(new.id) } else { String::new() };
    let data_dir = toml_text(&new.data_dir);
    let listen = new.listen_host.as_ref().map(|host| listen_table(host, new)).unwrap_or_default();
    let timing = timing_lines(answer);
    let groups = match answer.groups {
        0 | 1 => String::new(),
        groups => format!("groups = {groups}\n"),
    };
    format!(
        "cluster = \"{cluster}\"\nnode = {id}\ndata_dir = {data_dir}   # empty at its first start\n\
         join = true\n{groups}{timing}{insecure}\n{secured}{listen}[[nodes]]\nid = {id}\nclient = \"{client}\"\npeer = \"{peer}\"\n{http}",
        cluster = answer.cluster,
        id = new.id,
        client = new.client_address,
        peer = new.peer_address,
    )
}

/// `holdfast cert node` makes the files.
fn secured_tables(id: u64) -> String {
    let cert = format!("cert = \"/etc/holdfast/node-{id}.pem\"");
    let key = format!("key = \"/etc/holdfast/node-{id}-key.pem\"");
    format!(
        "[auth]\nmode = \"required\"\n\n\
         [tls]\n{cert}\n{key}\nclient_ca = \"/etc/holdfast/ca.pem\"\n\n\
         [peer_tls]\n{cert}\n{key}\nca = \"/etc/holdfast/ca.pem\"\n\n"
    )
}

/// What is not as usual: nodes whose settings of these differ refuse each other.
fn timing_lines(answer: &v1::AddNodeResponse) -> String {
    let usual = NodeConfig::usual_timing();
    let settings = [
        ("tick_ms", answer.tick_ms, usual.tick_ms),
        ("election_ticks", answer.election_ticks, usual.election_ticks),
    ];
    let unusual = settings.into_iter().filter(|(_, value, usual)| *value != 0 && value != usual);
    unusual.map(|(key, value, _)| format!("{key} = {value}\n")).collect()
}

/// On the ports by which it is reached.
fn listen_table(host: &str, new: &NewNode) -> String {
    let ports = [("client", Some(&new.client_address)), ("peer", Some(&new.peer_address))];
    let ports = ports.into_iter().chain([("http", new.http_address.as_ref())]);
    let lines = ports
        .filter_map(|(key, address)| Some(format!("{key} = \"{host}:{}\"\n", address?.port())));
    format!("[listen]\n{}\n", lines.collect::<String>())
}

fn toml_text(text: &str) -> String {
    // A JSON text is a TOML text.
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn what_is_printed_is_a_configuration_that_works() {
        let cases = [
            ("127.0.0.1", None, None, false),
            ("node-4.example", None, None, true),
            ("127.0.0.1", Some("node-4.example:7422"), None, true),
            ("node-4.example", Some("node-4.example:7422"), Some("0.0.0.0"), true),
            ("node-4.example", None, Some("[::1]"), false),
        ];
        for (host, http, listen_host, insecure) in cases {
            let http_address = http.map(|address| Address::new(address).unwrap());
            let new = NewNode {
                id: 4,
                peer_address: Address::new(&format!("{host}:7421")).unwrap(),
                client_address: Address::new(&format!("{host}:7420")).unwrap(),
                http_address: http_address.clone(),
                listen_host: listen_host.map(str::to_owned),
                data_dir: "/srv/it's \"here\"\\".to_owned(),
                timeout: Duration::ZERO,
            };
            let answer = v1::AddNodeResponse {
                cluster: "prod".to_owned(),
                tick_ms: 50,
                election_ticks: 40,
                ..Default::default()
            };
            let secured = NodeConfig::from_toml(&configuration(&answer, &new, true)).unwrap();
            assert!(!secured.insecure && secured.peer_tls.is_some());
            let text = configuration(&answer, &new, false);
            assert!(!text.contains("tick_ms"), "what is usual needs no line: {text}");
            assert!(!text.contains("groups"), "{text}");
            let divided = v1::AddNodeResponse { groups: 4, ..answer.clone() };
            let divided = NodeConfig::from_toml(&configuration(&divided, &new, false)).unwrap();
            assert_eq!(divided.groups, 4);
            let config = NodeConfig::from_toml(&text).unwrap();
            assert_eq!((config.tick_ms, config.election_ticks), (50, 40));
            assert!(config.join && config.node == 4 && config.cluster == "prod");
            assert_eq!(config.insecure, insecure);
            assert_eq!(config.nodes[0].http, http_address);
            let client = config.listen.client.map(|address| address.to_string());
            assert_eq!(client, listen_host.map(|host| format!("{host}:7420")));
            assert_eq!(config.listen.http.is_some(), listen_host.is_some() && http.is_some());
            assert_eq!(config.data_dir.to_str(), Some("/srv/it's \"here\"\\"));
        }
    }

    #[test]
    fn a_node_has_its_vote_when_it_votes_in_all_groups() {
        let members = |role: v1::NodeRole| vec![v1::GroupMember { node: 4, role: role.into() }];
        let group = |role| v1::GroupStatus { members: members(role), ..Default::default() };
        let (voter, learner) = (group(v1::NodeRole::Voter), group(v1::NodeRole::Learner));
        let absent = v1::GroupStatus {
            members: vec![v1::GroupMember { node: 1, role: v1::NodeRole::Voter.into() }],
            ..Default::default()
        };
        let of = |groups: &[&v1::GroupStatus]| {
            let groups = groups.iter().map(|group| (*group).clone()).collect();
            votes(&v1::ClusterStatusResponse { groups, ..Default::default() }, 4)
        };
        assert!(of(&[&voter, &voter]).is_in_all());
        let some = of(&[&voter, &learner, &absent]);
        assert!(!some.is_in_all());
        assert_eq!(some.to_words(), "; it votes in 1 of 3 groups");
        let one = of(&[&v1::GroupStatus::default()]);
        assert!(one.is_in_all() && one.to_words().is_empty());
    }
}
