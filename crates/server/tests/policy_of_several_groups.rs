//! The policy in a cluster with several groups: a change is made in the root group, and the others adopt it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use holdfast_cluster_kit::Wire;
use holdfast_core::Slot;
use holdfast_proto::GroupMap;
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::v1::cluster_service_client::ClusterServiceClient;
use holdfast_proto::v1::{
    AcquireResponse, ChangeAccessRequest, ChangeAccessResponse, Failure, ListSessionsRequest,
    OpenSessionRequest, Reason, ReleaseRequest, ShowAccessRequest, StatusRequest, StatusResponse,
    TransferLeadershipRequest, acquire_response,
};
use holdfast_server::{NodeConfig, bootstrap_token};
use support::every_method::with;
use support::secured::{Secured, access_client, bearer, grant, request};
use support::{acquire, eventually, new_session};
use tokio::task::JoinHandle;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

const GROUPS: u32 = 4;
/// It leads the last group.
const FAR_NODE: usize = 2;

fn with_groups(config: &mut NodeConfig) {
    config.groups = GROUPS;
    config.spreads_leaders = false;
}

fn as_user<T>(token: &str, message: T) -> Request<T> {
    with(message, Some(("authorization", &bearer(token))))
}

/// A session in all groups, and the map.
async fn open(secured: &Secured, token: &str) -> Result<(String, GroupMap), Status> {
    let session = new_session();
    let opening = OpenSessionRequest {
        session_id: session.clone(),
        request_id: 1,
        ttl_ms: 60_000,
        ..Default::default()
    };
    let mut client = secured.cluster.client(0).await;
    let opened = client.open_session(as_user(token, opening)).await?.into_inner();
    Ok((session, GroupMap::decode(opened.map.unwrap()).unwrap()))
}

fn name_of(map: &GroupMap, group: u32) -> String {
    let mut names = (0..).map(|number| format!("lock-{number}"));
    names.find(|name| map.owner_of(Slot::of(name)) == group).unwrap()
}

/// The root group and all but the last one are led by node 1.
async fn place_leaders(secured: &Secured) {
    for group in 1..=GROUPS {
        let to = if group == GROUPS { FAR_NODE as u64 + 1 } else { 1 };
        eventually("the node leads the group", async || {
            for node in 0..3 {
                let endpoint = format!("http://{}", secured.cluster.address(node));
                let channel = Endpoint::from_shared(endpoint).unwrap().connect().await.ok()?;
                let mut cluster = ClusterServiceClient::new(channel);
                let transfer = TransferLeadershipRequest { to, group };
                let _ = cluster.transfer_leadership(as_user(&secured.admin, transfer)).await;
                let request = holdfast_proto::v1::ClusterStatusRequest {
                    own_view: true,
                    ..Default::default()
                };
                let mut client = secured.cluster.client(node).await;
                let view = client.cluster_status(as_user(&secured.admin, request)).await.ok()?;
                let groups = view.into_inner().groups;
                if groups.iter().find(|status| status.group == group)?.leader != to {
                    return None;
                }
            }
            Some(())
        })
        .await;
    }
}

async fn change(secured: &Secured, request: ChangeAccessRequest) -> ChangeAccessResponse {
    let mut access = access_client(&secured.cluster.address(0)).await;
    access.change_access(as_user(&secured.admin, request)).await.unwrap().into_inner()
}

fn revoke(name: &str, role: &str) -> Change {
    match grant(name, role) {
        Change::Grant(binding) => Change::Revoke(binding),
        other => other,
    }
}

async fn status(secured: &Secured, name: &str) -> StatusResponse {
    eventually("the lock has a status", async || {
        let request = StatusRequest { name: name.to_owned(), request_id: 0 };
        let mut client = secured.cluster.client(0).await;
        client.status(as_user(&secured.admin, request)).await.ok().map(|it| it.into_inner())
    })
    .await
}

async fn take(secured: &Secured, token: &str, session: &str, id: u64, name: &str) -> u64 {
    let mut client = secured.cluster.client(0).await;
    let answer = client.acquire(as_user(token, acquire(session, id, name, 0))).await.unwrap();
    match answer.into_inner().outcome {
        Some(acquire_response::Outcome::Granted(grant)) => grant.token,
        outcome => panic!("{name} is not granted: {outcome:?}"),
    }
}

type Waiting = JoinHandle<Result<AcquireResponse, Status>>;

/// Waits in the queue of the lock.
async fn wait(secured: &Secured, token: &str, session: &str, id: u64, name: &str) -> Waiting {
    let mut client = secured.cluster.client(0).await;
    let asked = as_user(token, acquire(session, id, name, 50_000));
    let waiting =
        tokio::spawn(async move { client.acquire(asked).await.map(|answer| answer.into_inner()) });
    eventually("it waits", async || (status(secured, name).await.waiters.len() == 1).then_some(()))
        .await;
    waiting
}

async fn release(secured: &Secured, token: &str, session: &str, id: u64, held: (&str, u64)) {
    eventually("it is released", async || {
        let request = ReleaseRequest {
            session_id: session.to_owned(),
            request_id: id,
            name: held.0.to_owned(),
            token: held.1,
            ..Default::default()
        };
        let mut client = secured.cluster.client(0).await;
        client.release(as_user(token, request)).await.ok()
    })
    .await;
}

fn was_granted(answer: &Result<AcquireResponse, Status>) -> bool {
    let granted = |answer: &AcquireResponse| {
        matches!(answer.outcome, Some(acquire_response::Outcome::Granted(_)))
    };
    answer.as_ref().is_ok_and(granted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_user_is_granted_nothing_in_any_group_and_a_group_that_is_late_is_named() {
    let (secured, wire) = Secured::start_behind_wire(with_groups, FAR_NODE).await;
    let alice = secured.token("alice", "user").await;
    let bob = secured.token("bob", "user").await;
    place_leaders(&secured).await;
    let (bobs, map) = open(&secured, &bob).await.unwrap();
    let (alices, _) = open(&secured, &alice).await.unwrap();
    let names: Vec<String> = (1..=GROUPS).map(|group| name_of(&map, group)).collect();
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for (id, name) in (10..).zip(&names) {
        held.push(take(&secured, &bob, &bobs, id, name).await);
        waiting.push(wait(&secured, &alice, &alices, id, name).await);
    }

    wire.cut();
    let revoked = change(&secured, request(vec![revoke("alice", "user")])).await;
    assert_eq!(revoked.groups_behind, [GROUPS], "the leader of that group cannot commit");
    let mut waiting = waiting.into_iter();
    for (id, name) in (20..).zip(&names[..names.len() - 1]) {
        let token = held.remove(0);
        release(&secured, &bob, &bobs, id, (name, token)).await;
        let refusal = waiting.next().unwrap().await.unwrap().unwrap_err();
        assert_eq!(Failure::from_status(&refusal).reason(), Reason::PermissionDenied, "{refusal}");
        assert!(status(&secured, name).await.holders.is_empty(), "{name}");
    }
    assert_eq!(open(&secured, &alice).await.unwrap_err().code(), Code::PermissionDenied);

    wire.heal();
    eventually("the last group adopts the policy", async || {
        let no_change = request(vec![grant("bob", "user")]);
        change(&secured, no_change).await.groups_behind.is_empty().then_some(())
    })
    .await;
    let last = names.last().unwrap();
    release(&secured, &bob, &bobs, 30, (last, held.remove(0))).await;
    assert!(!was_granted(&waiting.next().unwrap().await.unwrap()));
    assert!(status(&secured, last).await.holders.is_empty(), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_hear_the_root_groups_leader_lets_others_lead() {
    let (secured, wires) = Secured::start_with_wires_between(with_groups, [0, FAR_NODE]).await;
    let alice = secured.token("alice", "user").await;
    place_leaders(&secured).await;
    let (session, map) = open(&secured, &alice).await.unwrap();
    let last = name_of(&map, GROUPS);
    take(&secured, &alice, &session, 10, &last).await;

    // The third node hears both leaders, and may not propose.
    wires.iter().for_each(Wire::cut);
    let revoke = request(vec![revoke("alice", "user")]);
    let revoked = change(&secured, ChangeAccessRequest { end_sessions: true, ..revoke }).await;
    assert_eq!(revoked.groups_behind, [GROUPS], "its leader does not know of the change");
    eventually("the last group has another leader, and adopts the policy", async || {
        let no_change = request(vec![grant("bob", "user")]);
        change(&secured, no_change).await.groups_behind.is_empty().then_some(())
    })
    .await;
    assert!(status(&secured, &last).await.holders.is_empty(), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_ends_sessions_ends_them_in_all_groups_before_it_is_answered() {
    let secured = Secured::start_with(with_groups).await;
    // What it was good for has ended at all nodes, whichever groups they lead.
    let bootstrap = bootstrap_token(&secured.cluster.configs[0].data_dir).unwrap();
    let refusal = open(&secured, &bootstrap.to_secret_text()).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unauthenticated, "{refusal}");

    let alice = secured.token("alice", "user").await;
    place_leaders(&secured).await;
    let (session, map) = open(&secured, &alice).await.unwrap();
    let names: Vec<String> = (1..=GROUPS).map(|group| name_of(&map, group)).collect();
    for (id, name) in (10..).zip(&names) {
        take(&secured, &alice, &session, id, name).await;
    }
    let ban = Change::Ban("token:alice".into());
    let ended = ChangeAccessRequest { end_sessions: true, ..request(vec![ban]) };
    let answer = tokio::time::timeout(Duration::from_secs(20), change(&secured, ended)).await;
    let answer = answer.unwrap();
    assert_eq!(answer.groups_behind, Vec::<u32>::new());
    for name in &names {
        assert!(status(&secured, name).await.holders.is_empty(), "{name}");
    }
    let mut client = secured.cluster.client(1).await;
    let sessions = client.list_sessions(as_user(&secured.admin, ListSessionsRequest::default()));
    assert_eq!(sessions.await.unwrap().into_inner().sessions, []);
    // Each node shows the policy of the root group.
    for node in 0..3 {
        let mut access = access_client(&secured.cluster.address(node)).await;
        let shown = access.show_access(as_user(&secured.admin, ShowAccessRequest {}));
        assert_eq!(shown.await.unwrap().into_inner().generation, answer.generation);
    }
}
