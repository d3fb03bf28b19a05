//! Nodes come and go in a cluster with several groups: the root group decides, and the others follow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;

use holdfast_core::Slot;
use holdfast_proto::GroupMap;
use holdfast_proto::v1::cluster_service_client::ClusterServiceClient;
use holdfast_proto::v1::{
    AddNodeRequest, AddNodeResponse, ClusterStatusRequest, ClusterStatusResponse, Failure,
    NodeRole, OpenSessionRequest, Reason, RemoveNodeRequest, StatusRequest,
    TransferLeadershipRequest, acquire_response,
};
use holdfast_server::{Node, NodeConfig, StopReason};
use support::{Cluster, PATIENCE, acquire, connect, eventually, new_session};
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

const GROUPS: u32 = 4;

fn with_groups(config: &mut NodeConfig) {
    config.groups = GROUPS;
    config.spreads_leaders = false;
}

async fn operator(address: &str) -> ClusterServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    ClusterServiceClient::new(endpoint.connect().await.unwrap())
}

/// The first node's configuration, changed for a node that joins. The ports are free ones.
fn joining(cluster: &Cluster, id: u64) -> NodeConfig {
    let mut config = cluster.configs[0].clone();
    let ports = support::free_addresses(2);
    let mut own = config.nodes[0].clone();
    (own.id, own.client, own.peer, own.http) = (id, ports[0].into(), ports[1].into(), None);
    config.data_dir.set_file_name(format!("node-{id}"));
    (config.node, config.join, config.nodes) = (id, true, vec![own]);
    config
}

fn addition(config: &NodeConfig) -> AddNodeRequest {
    AddNodeRequest {
        node: config.node,
        peer_address: config.nodes[0].peer.to_string(),
        client_address: config.nodes[0].client.to_string(),
        ..Default::default()
    }
}

/// Sends the change again until it is made. While a leader changes, the answer may be that another one has to be asked.
async fn made<T>(what: &str, change: impl AsyncFn() -> Result<T, Status>) -> T {
    eventually(what, async || match change().await {
        Ok(answer) => Some(answer),
        Err(status) => {
            let failure = Failure::from_status(&status);
            let may_come = failure.retryable || failure.reason() == Reason::ChangeUnderWay;
            assert!(may_come, "{what}: {status}");
            None
        }
    })
    .await
}

async fn add(address: &str, config: &NodeConfig) -> AddNodeResponse {
    let add = async || {
        let answer = operator(address).await.add_node(addition(config)).await?;
        Ok(answer.into_inner())
    };
    made("the node is added", add).await
}

async fn remove(address: &str, node: u64) {
    let remove = async || operator(address).await.remove_node(RemoveNodeRequest { node }).await;
    made("the node is removed", remove).await;
}

async fn status(address: &str) -> ClusterStatusResponse {
    let request = ClusterStatusRequest::default();
    connect(address).await.cluster_status(request).await.unwrap().into_inner()
}

/// Waits until the voters of all groups are these, as the leader of the root group knows.
async fn votes_become(address: &str, voters: &[u64]) {
    eventually(&format!("the voters are {voters:?}"), async || {
        let status = status(address).await;
        let is_so = status.groups.iter().all(|group| {
            let voting = group.members.iter().filter(|member| member.role() == NodeRole::Voter);
            let found: Vec<u64> = voting.map(|member| member.node).collect();
            found == voters && group.members.len() == voters.len()
        });
        (is_so && status.groups.len() == GROUPS as usize).then_some(())
    })
    .await;
}

/// Makes a node the leader of a group, by its id.
async fn make_leader(address: &str, group: u32, to: u64) {
    eventually("the node leads the group", async || {
        let request = TransferLeadershipRequest { to, group };
        let _ = operator(address).await.transfer_leadership(request).await;
        let status = status(address).await;
        let led = status.groups.iter().find(|status| status.group == group)?;
        (led.leader == to).then_some(())
    })
    .await;
}

/// A session in all groups that holds a lock of each; the names and their tokens.
async fn hold_in_each_group(address: &str, first_request: u64) -> BTreeMap<String, u64> {
    let client = connect(address).await;
    let session = new_session();
    let request = OpenSessionRequest {
        session_id: session.clone(),
        request_id: 1,
        ttl_ms: 120_000,
        ..Default::default()
    };
    let open = async || client.clone().open_session(request.clone()).await;
    let opened = made("the session is open", open).await.into_inner();
    let map = GroupMap::decode(opened.map.expect("no map")).unwrap();
    let mut held = BTreeMap::new();
    for group in 1..=GROUPS {
        let mut names = (0..).map(|number| format!("lock-{first_request}-{number}"));
        let name = names.find(|name| map.owner_of(Slot::of(name)) == group).unwrap();
        let request = acquire(&session, first_request + u64::from(group), &name, 0);
        let acquire = async || client.clone().acquire(request.clone()).await;
        let granted = made("it is granted", acquire).await.into_inner().outcome;
        let Some(acquire_response::Outcome::Granted(grant)) = granted else {
            panic!("{name}: {granted:?}");
        };
        held.insert(name, grant.token);
    }
    held
}

async fn are_held(address: &str, held: &BTreeMap<String, u64>) {
    for (name, token) in held {
        eventually("the status is answered", async || {
            let request = StatusRequest { name: name.clone(), request_id: 0 };
            let status = connect(address).await.status(request).await.ok()?.into_inner();
            let tokens: Vec<u64> = status.holders.iter().map(|holder| holder.token).collect();
            assert_eq!(tokens, [*token], "{name}");
            Some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_comes_to_all_groups_and_goes_from_all_of_them() {
    let mut cluster = Cluster::start_with(3, with_groups).await;
    let asked = cluster.address(1);
    for group in 1..=GROUPS {
        make_leader(&asked, group, u64::from(group % 3) + 1).await;
    }
    let held = hold_in_each_group(&asked, 10).await;
    let config = joining(&cluster, 4);
    let added = add(&asked, &config).await;
    assert_eq!((added.groups, added.groups_behind), (GROUPS, vec![]));
    // The leader of group 2 stops before the node is there.
    cluster.stop(2).await;
    let mut node = Node::start(config.clone()).await.unwrap();
    let new = config.nodes[0].client.to_string();
    votes_become(&asked, &[1, 2, 3, 4]).await;
    timeout(PATIENCE, node.serving()).await.expect("it serves all groups");
    are_held(&new, &held).await;
    assert_eq!(add(&asked, &config).await.groups_behind, [0; 0], "the same again");
    cluster.restart(2).await;

    // It leads a group when it is removed, and so does another node.
    make_leader(&asked, 3, 4).await;
    make_leader(&asked, 1, 4).await;
    let more = hold_in_each_group(&new, 30).await;
    remove(&asked, 4).await;
    let reason = timeout(PATIENCE, node.stopped()).await.expect("it stops");
    assert!(matches!(reason, StopReason::Removed), "{reason}");
    votes_become(&asked, &[1, 2, 3]).await;
    remove(&asked, 4).await;
    are_held(&asked, &held).await;
    are_held(&asked, &more).await;
    let again = operator(&asked).await.add_node(addition(&config)).await.unwrap_err();
    assert_eq!(Failure::from_status(&again).reason(), Reason::NodeIdInUse, "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_one_node_moves_to_another_one() {
    let cluster = Cluster::start_with(1, with_groups).await;
    let asked = cluster.address(0);
    let held = hold_in_each_group(&asked, 10).await;
    let config = joining(&cluster, 2);
    assert_eq!(add(&asked, &config).await.groups, GROUPS);
    let node = Node::start(config.clone()).await.unwrap();
    votes_become(&asked, &[1, 2]).await;
    timeout(PATIENCE, node.serving()).await.expect("it serves all groups");
    // The first node leads all groups, and goes.
    let new = config.nodes[0].client.to_string();
    remove(&new, 1).await;
    votes_become(&new, &[2]).await;
    are_held(&new, &held).await;
    hold_in_each_group(&new, 30).await;
}
