//! A cluster with several groups: each owns some of the locks, and has a leader of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::path::PathBuf;

use holdfast_core::Slot;
use holdfast_proto::GroupMap;
use holdfast_proto::v1::cluster_service_client::ClusterServiceClient;
use holdfast_proto::v1::operator_service_client::OperatorServiceClient;
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_proto::v1::{
    AcquireAllRequest, AddNodeRequest, ClusterStatusRequest, Failure, FreezeRequest,
    HistoryRequest, Intervention, KeepAliveRequest, KillSessionRequest, ListRequest,
    ListSessionsRequest, Member, OpenSessionRequest, Reason, SaveSnapshotRequest, StatusRequest,
    TransferLeadershipRequest, WatchRequest, acquire_response, answer, operation,
};
use holdfast_server::{Node, NodeConfig};
use support::{Client, Cluster, OnStream, acquire, eventually, new_session};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const GROUPS: u32 = 4;
const TTL_MS: u64 = 60_000;

fn with_groups(config: &mut NodeConfig) {
    config.groups = GROUPS;
}

async fn channel(cluster: &Cluster, node: usize) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", cluster.address(node))).unwrap();
    endpoint.connect().await.unwrap()
}

fn opening(session: &str, group: u32) -> OpenSessionRequest {
    OpenSessionRequest {
        session_id: session.to_owned(),
        request_id: 1,
        ttl_ms: TTL_MS,
        group,
        ..Default::default()
    }
}

/// A session that is open in all groups, and the map that the client got.
async fn open_in_all_groups(client: &mut Client) -> (String, GroupMap) {
    let session = new_session();
    let mut map = None;
    for group in 1..=GROUPS {
        let opened = client.open_session(opening(&session, group)).await.unwrap().into_inner();
        map = opened.map;
    }
    (session, GroupMap::decode(map.expect("no map")).unwrap())
}

/// A lock name that this group owns.
fn name_of(map: &GroupMap, group: u32) -> String {
    let mut names = (0..).map(|number| format!("lock-{number}"));
    names.find(|name| map.owner_of(Slot::of(name)) == group).unwrap()
}

async fn take(client: &mut Client, session: &str, request_id: u64, name: &str) -> u64 {
    let answer = client.acquire(acquire(session, request_id, name, 0)).await.unwrap().into_inner();
    match answer.outcome {
        Some(acquire_response::Outcome::Granted(grant)) => grant.token,
        outcome => panic!("{name} is not granted: {outcome:?}"),
    }
}

async fn token_and_group(client: &mut Client, name: &str) -> (Option<u64>, u32) {
    let request = StatusRequest { name: name.to_owned(), request_id: 0 };
    let status = client.status(request).await.unwrap().into_inner();
    (status.holders.first().map(|holder| holder.token), status.group)
}

/// Makes a node the leader of a group, and waits until all nodes know it.
async fn make_leader(cluster: &Cluster, group: u32, node: usize) {
    let to = node as u64 + 1;
    eventually("the node leads the group", async || {
        let mut client = ClusterServiceClient::new(channel(cluster, 0).await);
        let request = TransferLeadershipRequest { to, group };
        let _ = client.transfer_leadership(request).await;
        for asked in 0..cluster.configs.len() {
            let request = ClusterStatusRequest { own_view: true, ..Default::default() };
            let view = cluster.client(asked).await.cluster_status(request).await.ok()?.into_inner();
            let status = view.groups.iter().find(|status| status.group == group)?;
            if status.leader != to {
                return None;
            }
        }
        Some(())
    })
    .await;
}

fn reason(status: &Status) -> Reason {
    Failure::from_status(status).reason()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_all_groups_are_granted_through_any_node_wherever_their_groups_are_led() {
    let cluster = Cluster::start_with(3, with_groups).await;
    for group in 1..=GROUPS {
        make_leader(&cluster, group, group as usize % 3).await;
    }
    let (session, map) = open_in_all_groups(&mut cluster.client(0).await).await;
    for group in 1..=GROUPS {
        let leader = group as usize % 3;
        assert_eq!(map.leader_of(group), cluster.address(leader), "group {group}");
        let name = name_of(&map, group);
        // Each request through another node, and at least one of them forwards it.
        let mut client = cluster.client(group as usize % 2).await;
        let token = take(&mut client, &session, 10, &name).await;
        for node in 0..3 {
            let mut client = cluster.client(node).await;
            assert_eq!(token_and_group(&mut client, &name).await, (Some(token), group));
            let keep_alive =
                KeepAliveRequest { session_id: session.clone(), group, ..Default::default() };
            client.keep_alive(keep_alive).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_refuses_the_locks_of_other_groups_and_several_groups_at_once() {
    let cluster = Cluster::start_with(1, with_groups).await;
    let mut client = cluster.client(0).await;
    let (session, map) = open_in_all_groups(&mut client).await;
    let (second, third) = (name_of(&map, 2), name_of(&map, 3));

    let stream_session = new_session();
    let open = operation::Kind::Open(opening(&stream_session, 2));
    let mut stream = OnStream::begin(&mut client, stream_session, open).await;
    stream.next().await.unwrap();
    stream.send(vec![operation::Kind::Acquire(acquire("", 2, &third, 0))]).await;
    let frame = stream.next().await.unwrap();
    let Some(answer::Result::Failure(failure)) = &frame.answers[0].result else {
        panic!("not refused: {frame:?}");
    };
    assert_eq!((failure.reason(), failure.map_epoch), (Reason::WrongGroup, map.epoch().0));
    stream.send(vec![operation::Kind::Acquire(acquire("", 3, &second, 0))]).await;
    let frame = stream.next().await.unwrap();
    assert!(matches!(frame.answers[0].result, Some(answer::Result::Acquire(_))), "{frame:?}");

    let all = |request_id, names: [&str; 2]| AcquireAllRequest {
        session_id: session.clone(),
        request_id,
        members: names.map(|name| Member { name: name.into(), ..Default::default() }).into(),
        ..Default::default()
    };
    let refusal = client.acquire_all(all(20, [&second, &third])).await.unwrap_err();
    assert_eq!(reason(&refusal), Reason::SeveralGroups);
    assert!(refusal.message().contains("{tag}"), "{refusal}");
    client.acquire_all(all(21, ["{order-42}/header", "{order-42}/lines"])).await.unwrap();

    let elsewhere = client.open_session(opening(&new_session(), GROUPS + 1)).await.unwrap_err();
    assert_eq!(
        (reason(&elsewhere), elsewhere.code()),
        (Reason::WrongGroup, Code::FailedPrecondition)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_leader_moves_ends_its_streams_and_no_others() {
    let cluster = Cluster::start_with(3, with_groups).await;
    for group in [1, 2] {
        make_leader(&cluster, group, 0).await;
    }
    let mut client = cluster.client(0).await;
    let mut streams = Vec::new();
    for group in [1, 2] {
        let session = new_session();
        let open = operation::Kind::Open(opening(&session, group));
        let mut stream = OnStream::begin(&mut client, session, open).await;
        stream.next().await.unwrap();
        streams.push(stream);
    }
    make_leader(&cluster, 2, 1).await;
    let (mut moved, mut stays) = (streams.pop().unwrap(), streams.pop().unwrap());
    let end = moved.end().await;
    assert_eq!(reason(&end), Reason::NotLeader);
    let heartbeat = KeepAliveRequest { request_id: 2, ..Default::default() };
    stays.send(vec![operation::Kind::KeepAlive(heartbeat)]).await;
    let frame = stays.next().await.unwrap();
    assert!(matches!(frame.answers[0].result, Some(answer::Result::KeepAlive(_))), "{frame:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_the_locks_of_all_groups() {
    let mut cluster = Cluster::start_with(1, with_groups).await;
    let (session, map) = open_in_all_groups(&mut cluster.client(0).await).await;
    let mut tokens = Vec::new();
    for group in 1..=GROUPS {
        let mut client = cluster.client(0).await;
        tokens.push(take(&mut client, &session, 10, &name_of(&map, group)).await);
    }
    cluster.stop(0).await;
    cluster.restart(0).await;
    let mut client = cluster.client(0).await;
    for (group, token) in (1..=GROUPS).zip(tokens) {
        let found = token_and_group(&mut client, &name_of(&map, group)).await;
        assert_eq!(found, (Some(token), group));
    }
}

fn identity(config: &NodeConfig) -> PathBuf {
    config.data_dir.join("identity.toml")
}

async fn refusal_of_start(config: &NodeConfig) -> String {
    match Node::start(config.clone()).await {
        Ok(_) => panic!("the node has started"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_groups_that_the_identity_does_not_name_is_refused_and_keeps_them() {
    let mut cluster = Cluster::start_with(1, with_groups).await;
    let (session, map) = open_in_all_groups(&mut cluster.client(0).await).await;
    let name = name_of(&map, GROUPS);
    let token = take(&mut cluster.client(0).await, &session, 10, &name).await;
    cluster.stop(0).await;

    let config = cluster.configs[0].clone();
    for groups in [1, GROUPS + 1] {
        let words = refusal_of_start(&NodeConfig { groups, ..config.clone() }).await;
        assert!(words.contains("write groups = 4"), "{words}");
    }

    let marked = std::fs::read_to_string(identity(&config)).unwrap();
    let of_one_group = marked.replace("version = 2", "version = 1").replace("groups = 4\n", "");
    assert_ne!(of_one_group, marked);
    std::fs::write(identity(&config), of_one_group).unwrap();
    let words = refusal_of_start(&NodeConfig { groups: 1, ..config.clone() }).await;
    assert!(words.contains("what group 2 has promised"), "{words}");

    std::fs::write(identity(&config), marked).unwrap();
    cluster.restart(0).await;
    let found = token_and_group(&mut cluster.client(0).await, &name).await;
    assert_eq!(found, (Some(token), GROUPS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_work_in_several_groups_yet_is_refused_as_a_whole() {
    let cluster = Cluster::start_with(1, with_groups).await;
    let mut locks = cluster.client(0).await;
    let mut members = ClusterServiceClient::new(channel(&cluster, 0).await);
    let mut operator = OperatorServiceClient::new(channel(&cluster, 0).await);
    let mut watch = WatchServiceClient::new(channel(&cluster, 0).await);
    let intervention = Some(Intervention { by: "ops".into(), reason: "test".into() });

    let mut refusals = vec![
        locks.list(ListRequest::default()).await.unwrap_err(),
        locks.list(ListRequest { contains: "x".into(), ..Default::default() }).await.unwrap_err(),
        locks.list_sessions(ListSessionsRequest::default()).await.unwrap_err(),
        watch.watch(WatchRequest::default()).await.unwrap_err(),
        watch.history(HistoryRequest { name: "a".into(), ..Default::default() }).await.unwrap_err(),
        members.save_snapshot(SaveSnapshotRequest::default()).await.unwrap_err(),
    ];
    let freeze =
        FreezeRequest { intervention: intervention.clone(), prefix: "a".into(), ttl_ms: 1_000 };
    refusals.push(operator.freeze(freeze).await.unwrap_err());
    let kill = KillSessionRequest { intervention, public_session_id: "0123456789abcdef".into() };
    refusals.push(operator.kill_session(kill).await.unwrap_err());
    let add = AddNodeRequest {
        node: 2,
        peer_address: "127.0.0.1:1".into(),
        client_address: "127.0.0.1:2".into(),
        ..Default::default()
    };
    refusals.push(members.add_node(add).await.unwrap_err());
    for refusal in refusals {
        assert_eq!(reason(&refusal), Reason::SeveralGroups, "{refusal}");
        assert!(refusal.message().contains("several groups"), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_one_group_tells_no_map() {
    let cluster = Cluster::start(1).await;
    let opening = opening(&new_session(), 0);
    let opened = cluster.client(0).await.open_session(opening).await.unwrap().into_inner();
    assert_eq!(opened.map, None);
}
