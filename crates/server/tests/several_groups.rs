//! A cluster with several groups: each owns some of the locks, and has a leader of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use holdfast_core::Slot;
use holdfast_proto::GroupMap;
use holdfast_proto::v1::cluster_service_client::ClusterServiceClient;
use holdfast_proto::v1::operator_service_client::OperatorServiceClient;
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_proto::v1::{
    AcquireAllRequest, AcquireRequest, CancelRequest, CloseSessionRequest, ClusterStatusRequest,
    EventKind, EventPosition, Failure, FreezeRequest, HistoryRequest, Intervention,
    KeepAliveManyRequest, KeepAliveRequest, KillSessionRequest, ListFreezesRequest, ListOrder,
    ListRequest, ListSessionsRequest, Member, OpenSessionRequest, Reason, SaveSnapshotRequest,
    StatusRequest, ThawRequest, Tier, TransferLeadershipRequest, WatchFrame, WatchRequest,
    acquire_response, answer, cancel_response, operation, save_snapshot_chunk,
};
use holdfast_replica::{read_parts, read_snapshot};
use holdfast_server::{AuditConfig, Node, NodeConfig};
use support::{Client, Cluster, OnStream, acquire, eventually, new_session};
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status, Streaming};

const GROUPS: u32 = 4;
const TTL_MS: u64 = 60_000;

fn with_groups(config: &mut NodeConfig) {
    config.groups = GROUPS;
    config.spreads_leaders = false;
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

/// The answer to a call, once the group has a leader: on a busy machine leaders change by themselves.
async fn answered<T>(call: impl AsyncFn() -> Result<Response<T>, Status>) -> T {
    eventually("a leader answers", async || match call().await {
        Ok(answer) => Some(answer.into_inner()),
        Err(status) if Failure::from_status(&status).retryable => None,
        Err(status) => panic!("{status}"),
    })
    .await
}

async fn take(client: &mut Client, session: &str, request_id: u64, name: &str) -> u64 {
    let request = acquire(session, request_id, name, 0);
    let answer = answered(async || client.clone().acquire(request.clone()).await).await;
    match answer.outcome {
        Some(acquire_response::Outcome::Granted(grant)) => grant.token,
        outcome => panic!("{name} is not granted: {outcome:?}"),
    }
}

async fn token_and_group(client: &mut Client, name: &str) -> (Option<u64>, u32) {
    let request = StatusRequest { name: name.to_owned(), request_id: 0 };
    let status = answered(async || client.clone().status(request.clone()).await).await;
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

/// A cluster whose groups are led by different nodes, and a session that holds two locks of each group.
async fn cluster_with_holds() -> (Cluster, String, Vec<String>) {
    let cluster = Cluster::start_with(3, with_groups).await;
    for group in 1..=GROUPS {
        make_leader(&cluster, group, group as usize % 3).await;
    }
    let mut client = cluster.client(0).await;
    let (session, map) = open_in_all_groups(&mut client).await;
    let mut held = Vec::new();
    for group in 1..=GROUPS {
        let names = (0..).map(|number| format!("lock-{number}"));
        let owned = names.filter(|name| map.owner_of(Slot::of(name)) == group).take(2);
        for name in owned {
            take(&mut client, &session, 10 + held.len() as u64, &name).await;
            held.push(name);
        }
    }
    held.sort_unstable();
    (cluster, session, held)
}

async fn all_pages(client: &mut Client, request: ListRequest) -> Vec<String> {
    let (mut names, mut page) = (Vec::new(), String::new());
    loop {
        let asked = ListRequest { page, ..request.clone() };
        let answer = answered(async || client.clone().list(asked.clone()).await).await;
        names.extend(answer.locks.into_iter().map(|lock| lock.name));
        page = answer.next_page;
        if page.is_empty() {
            return names;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_have_the_locks_and_the_sessions_of_all_groups_through_any_node() {
    let (cluster, _, held) = cluster_with_holds().await;
    for node in 0..3 {
        let mut client = cluster.client(node).await;
        let plain = ListRequest { page_size: 3, ..Default::default() };
        assert_eq!(all_pages(&mut client, plain.clone()).await, held);
        let searched = ListRequest { contains: "LOCK".into(), ..plain.clone() };
        assert_eq!(all_pages(&mut client, searched).await, held);

        let ranked = ListRequest { order: ListOrder::HoldAge.into(), ..plain };
        let first = client.list(ranked.clone()).await.unwrap().into_inner();
        assert_eq!((first.locks.len(), first.matched), (3, Some(held.len() as u64)));
        // Between two pages a group may make its ranking again, which shifts the lines of the others.
        eventually("the pages of a ranking have each lock once", async || {
            let mut names = all_pages(&mut client.clone(), ranked.clone()).await;
            names.sort_unstable();
            (names == held).then_some(())
        })
        .await;

        let request = ListSessionsRequest::default();
        let sessions = client.list_sessions(request).await.unwrap().into_inner().sessions;
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        assert_eq!(sessions[0].hold_count, held.len() as u64);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_concerns_the_locks_of_all_groups_and_so_does_its_end() {
    let (cluster, session, held) = cluster_with_holds().await;
    let intervention = Some(Intervention { by: "ops".into(), reason: "test".into() });
    let mut operator = OperatorServiceClient::new(channel(&cluster, 1).await);
    let freeze =
        FreezeRequest { intervention: intervention.clone(), prefix: "l".into(), ttl_ms: 60_000 };
    let frozen = operator.freeze(freeze).await.unwrap().into_inner();
    assert!((1..=60_000).contains(&frozen.remaining_ms), "{frozen:?}");
    let mut client = cluster.client(2).await;
    for name in &held {
        let request = StatusRequest { name: name.clone(), request_id: 0 };
        let status = client.status(request).await.unwrap().into_inner();
        assert_eq!(status.frozen.map(|frozen| frozen.prefix).as_deref(), Some("l"), "{name}");
    }
    let freezes = operator.list_freezes(ListFreezesRequest {}).await.unwrap().into_inner().freezes;
    assert_eq!(freezes.len(), 1, "{freezes:?}");

    let thaw = ThawRequest { intervention, prefix: "l".into() };
    operator.thaw(thaw.clone()).await.unwrap();
    for (request_id, name) in (100..).zip(&held) {
        let next = format!("{name}{{{name}}}");
        take(&mut client, &session, request_id, &next).await;
    }
    let again = operator.thaw(thaw).await.unwrap_err();
    assert_eq!(reason(&again), Reason::NotFrozen);
}

/// What a watch has told.
#[derive(Default)]
struct SeenEvents {
    locks: Vec<String>,
    granted: BTreeSet<String>,
    positions: BTreeMap<u32, EventPosition>,
}

impl SeenEvents {
    async fn read_until(
        &mut self,
        frames: &mut Streaming<WatchFrame>,
        is_over: impl Fn(&SeenEvents, &WatchFrame) -> bool,
    ) {
        loop {
            let frame = frames.message().await.unwrap().expect("the watch has ended");
            if let Some(position) = frame.position {
                let before = self.positions.insert(position.group, position);
                assert!(before.is_none_or(|before| before.index <= position.index), "{frame:?}");
            }
            self.locks.extend(frame.locks.iter().map(|lock| lock.name.clone()));
            let granted = frame.events.iter().filter(|event| event.kind() == EventKind::Granted);
            self.granted.extend(granted.flat_map(|event| event.names.clone()));
            if is_over(self, &frame) {
                return;
            }
        }
    }
}

/// Takes a lock in the slot of each of these, and returns their names.
async fn take_beside(
    client: &mut Client,
    session: &str,
    first_request: u64,
    names: &[String],
) -> BTreeSet<String> {
    let mut taken = BTreeSet::new();
    for (request_id, name) in (first_request..).zip(names) {
        let beside = format!("{first_request}{{{name}}}");
        take(client, session, request_id, &beside).await;
        taken.insert(beside);
    }
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_tells_what_happens_in_all_groups_and_goes_on_at_another_node() {
    let (cluster, session, held) = cluster_with_holds().await;
    let mut client = cluster.client(0).await;
    let mut watch = WatchServiceClient::new(channel(&cluster, 1).await);
    let mut frames = watch.watch(WatchRequest::default()).await.unwrap().into_inner();
    let mut told = SeenEvents::default();
    told.read_until(&mut frames, |_, frame| frame.snapshot_complete).await;
    told.locks.sort_unstable();
    assert_eq!((&told.locks, told.granted.len()), (&held, 0));

    let first = take_beside(&mut client, &session, 200, &held).await;
    told.read_until(&mut frames, |told, _| told.granted.len() == held.len()).await;
    assert_eq!(told.granted, first);
    drop(frames);

    let second = take_beside(&mut client, &session, 300, &held).await;
    let after_groups: Vec<EventPosition> = told.positions.values().copied().collect();
    assert_eq!(after_groups.len(), GROUPS as usize);
    let mut watch = WatchServiceClient::new(channel(&cluster, 2).await);
    let go_on = WatchRequest { after_groups, ..Default::default() };
    let mut frames = watch.watch(go_on).await.unwrap().into_inner();
    let mut later = SeenEvents::default();
    later.read_until(&mut frames, |told, _| told.granted.len() == held.len()).await;
    assert_eq!((later.granted, later.locks.len()), (second, 0));

    let after = told.positions.values().next().copied();
    let incomplete = WatchRequest { after, ..Default::default() };
    let refusal = watch.watch(incomplete).await.unwrap_err();
    assert_eq!(reason(&refusal), Reason::Compacted, "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_about_a_session_without_a_group_concern_all_groups() {
    let cluster = Cluster::start_with(3, with_groups).await;
    for group in 1..=GROUPS {
        make_leader(&cluster, group, group as usize % 3).await;
    }
    let mut client = cluster.client(1).await;
    let session = new_session();
    let opened = client.open_session(opening(&session, 0)).await.unwrap().into_inner();
    let map = GroupMap::decode(opened.map.unwrap()).unwrap();
    let names: Vec<String> = (1..=GROUPS).map(|group| name_of(&map, group)).collect();
    for (request_id, name) in (10..).zip(&names) {
        take(&mut client, &session, request_id, name).await;
    }

    let other = new_session();
    client.open_session(opening(&other, 0)).await.unwrap();
    let mut waiting = cluster.client(2).await;
    let wait = acquire(&other, 2, &names[2], 30_000);
    let wait = tokio::spawn(async move { waiting.acquire(wait).await });
    eventually("the other session waits", async || {
        let request = StatusRequest { name: names[2].clone(), request_id: 0 };
        let status = client.clone().status(request).await.ok()?.into_inner();
        (status.waiter_count == 1).then_some(())
    })
    .await;
    let cancel =
        CancelRequest { session_id: other, request_id: 3, target: 2, ..Default::default() };
    let cancelled = client.cancel(cancel).await.unwrap().into_inner();
    assert!(matches!(cancelled.outcome, Some(cancel_response::Outcome::Cancelled(_))));
    let answer = wait.await.unwrap().unwrap().into_inner();
    assert!(matches!(answer.outcome, Some(acquire_response::Outcome::Cancelled(_))), "{answer:?}");

    let keep_alive = KeepAliveRequest { session_id: session.clone(), ..Default::default() };
    let alive = client.keep_alive(keep_alive.clone()).await.unwrap().into_inner();
    assert_eq!(alive.ttl_ms, TTL_MS);
    let close_in_third =
        CloseSessionRequest { session_id: session.clone(), group: 3, ..Default::default() };
    client.close_session(close_in_third).await.unwrap();
    let ended = client.keep_alive(keep_alive).await.unwrap_err();
    assert_eq!(reason(&ended), Reason::UnknownSession, "{ended}");
    let many = KeepAliveManyRequest { session_ids: vec![session.clone()], ..Default::default() };
    assert_eq!(client.keep_alive_many(many).await.unwrap().into_inner().ttl_ms, [0]);

    let close = CloseSessionRequest { session_id: session, ..Default::default() };
    client.close_session(close.clone()).await.unwrap();
    for name in &names {
        assert_eq!(token_and_group(&mut client, name).await.0, None, "{name}");
    }
    let again = client.close_session(close).await.unwrap_err();
    assert_eq!(reason(&again), Reason::UnknownSession, "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_of_a_lock_comes_from_its_group() {
    let (cluster, _, held) = cluster_with_holds().await;
    for (name, node) in held.iter().zip([0, 1, 2].into_iter().cycle()) {
        let mut watch = WatchServiceClient::new(channel(&cluster, node).await);
        let request = HistoryRequest { name: name.clone(), ..Default::default() };
        let history = watch.history(request).await.unwrap().into_inner();
        let (_, group) = token_and_group(&mut cluster.client(node).await, name).await;
        let [event] = &history.events[..] else { panic!("{history:?}") };
        assert_eq!((event.kind(), &event.names[..]), (EventKind::Granted, &[name.clone()][..]));
        assert_eq!(event.position.map(|position| position.group), Some(group));
        assert_eq!(history.owners.len(), 1, "{history:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_an_operator_kills_ends_in_all_groups() {
    let (cluster, _, held) = cluster_with_holds().await;
    let mut client = cluster.client(0).await;
    let sessions = client.list_sessions(ListSessionsRequest::default()).await.unwrap().into_inner();
    let kill = KillSessionRequest {
        intervention: Some(Intervention { by: "ops".into(), reason: "test".into() }),
        public_session_id: sessions.sessions[0].public_id.clone(),
    };
    let mut operator = OperatorServiceClient::new(channel(&cluster, 2).await);
    operator.kill_session(kill.clone()).await.unwrap();
    for name in &held {
        assert_eq!(token_and_group(&mut client, name).await.0, None, "{name}");
    }
    let again = operator.kill_session(kill).await.unwrap_err();
    assert_eq!(reason(&again), Reason::NoSuchSession);
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
    client.acquire(acquire(&session, 19, &third, 0)).await.unwrap();
    let held = StatusRequest { name: third.clone(), request_id: 4 };
    stream.send(vec![operation::Kind::Status(held)]).await;
    let frame = stream.next().await.unwrap();
    let Some(answer::Result::Failure(failure)) = &frame.answers[0].result else {
        panic!("a lock that another group has granted looks free: {frame:?}");
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
async fn the_status_of_a_lock_of_any_group_shows_its_holder_in_the_efficiency_tier() {
    let cluster = Cluster::start_with(1, with_groups).await;
    let mut client = cluster.client(0).await;
    let (session, map) = open_in_all_groups(&mut client).await;
    for group in 1..=GROUPS {
        let name = name_of(&map, group);
        let tier = Tier::Efficiency.into();
        let request = AcquireRequest { tier, ..acquire(&session, 10 + u64::from(group), &name, 0) };
        answered(async || client.clone().acquire(request.clone()).await).await;
        let request = StatusRequest { name, request_id: 0 };
        let status = answered(async || client.clone().status(request.clone()).await).await;
        assert_eq!(status.efficiency.map(|tier| tier.holder_count), Some(1), "group {group}");
    }
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

/// How many groups each node leads, in the view of one node; none while a group has no leader.
async fn led_by_each(cluster: &Cluster, asked: usize) -> Option<BTreeMap<u64, usize>> {
    let request = ClusterStatusRequest { own_view: true, ..Default::default() };
    let view = cluster.client(asked).await.cluster_status(request).await.ok()?.into_inner();
    let mut counts = BTreeMap::new();
    for group in view.groups {
        *counts.entry(Some(group.leader).filter(|leader| *leader > 0)?).or_default() += 1;
    }
    Some(counts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_are_spread_over_the_nodes_and_again_after_a_node_was_away() {
    let mut cluster = Cluster::start_with(3, |config| {
        config.groups = 6;
        // On a busy machine leaders change by themselves. The unit tests show that such groups stay.
        config.leaders_stay_for = Duration::ZERO;
    })
    .await;
    until_each_leads_two_groups(&cluster).await;
    cluster.stop(2).await;
    eventually("two nodes lead all groups", async || {
        (!led_by_each(&cluster, 0).await?.contains_key(&3)).then_some(())
    })
    .await;
    cluster.restart(2).await;
    until_each_leads_two_groups(&cluster).await;
}

/// A node that lost its groups is left alone for a while, on a busy machine perhaps twice.
async fn until_each_leads_two_groups(cluster: &Cluster) {
    let even = BTreeMap::from([(1, 2), (2, 2), (3, 2)]);
    let is_even = async {
        while led_by_each(cluster, 0).await.as_ref() != Some(&even) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(90), is_even).await.expect("the leaders are not even");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_has_each_event_of_each_group_once_and_in_order_across_restarts() {
    const FILES_KEPT: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let mut cluster = Cluster::start_with(1, |config| {
        with_groups(config);
        // Small, so that files are rotated.
        let audit = AuditConfig::new(file.clone());
        config.audit = Some(AuditConfig { file_bytes: 4_096, files_kept: FILES_KEPT, ..audit });
    })
    .await;
    let (session, map) = open_in_all_groups(&mut cluster.client(0).await).await;
    let mut taken: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for round in 0..3_u64 {
        let mut client = cluster.client(0).await;
        for group in 1..=GROUPS {
            // In group 4 nothing happens but in the first round.
            let count = if group == GROUPS && round > 0 { 0 } else { 4 };
            for number in 0..count {
                let name = format!("{round}-{number}{{{}}}", name_of(&map, group));
                take(&mut client, &session, 10 + 10 * round + number, &name).await;
                taken.entry(group).or_default().push(name);
            }
        }
        cluster.stop(0).await;
        cluster.restart(0).await;
    }
    cluster.stop(0).await;

    let older =
        (1..=FILES_KEPT).rev().map(|number| dir.path().join(format!("audit.jsonl.{number}")));
    let files: Vec<PathBuf> = older.chain([file]).filter(|path| path.exists()).collect();
    assert!(files.len() > 2, "{files:?}");
    let text: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let mut granted: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut last: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let event = line["event"].as_str().unwrap();
        assert!(!["gap", "beginning"].contains(&event), "{line}");
        if ["leadership", "membership", "positions"].contains(&event) {
            continue;
        }
        let group = line["group"].as_u64().unwrap() as u32;
        let at = (line["index"].as_u64().unwrap(), line["number"].as_u64().unwrap());
        let before = last.insert(group, at);
        assert!(before.is_none_or(|before| before < at), "{line} after {before:?}");
        if event == "granted" {
            let name = line["names"][0].as_str().unwrap().to_owned();
            granted.entry(group).or_default().push(name);
        }
    }
    assert_eq!(granted, taken);
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
async fn a_snapshot_of_no_group_in_particular_is_refused() {
    let cluster = Cluster::start_with(1, with_groups).await;
    let mut members = ClusterServiceClient::new(channel(&cluster, 0).await);
    // A client of an older build, which would take one group for all of them.
    let refusal = members.save_snapshot(SaveSnapshotRequest::default()).await.unwrap_err();
    assert_eq!(reason(&refusal), Reason::SeveralGroups, "{refusal}");
    assert!(refusal.message().contains("several groups"), "{refusal}");
}

/// The snapshot of a group: its header and its body.
async fn save_group(cluster: &Cluster, node: usize, group: u32) -> Vec<u8> {
    let mut client = ClusterServiceClient::new(channel(cluster, node).await);
    let request = SaveSnapshotRequest { group };
    let mut chunks = client.save_snapshot(request).await.unwrap().into_inner();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.message().await.unwrap() {
        match chunk.kind.unwrap() {
            save_snapshot_chunk::Kind::Header(header) => {
                assert!(bytes.is_empty(), "the header comes first");
                bytes = header;
            }
            save_snapshot_chunk::Kind::Piece(piece) => bytes.extend(piece),
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_of_each_group_saves_it_whichever_node_is_asked() {
    let (cluster, _, held) = cluster_with_holds().await;
    for node in 0..3 {
        let mut file = Vec::new();
        for group in 1..=GROUPS {
            file.extend(save_group(&cluster, node, group).await);
        }
        let parts = read_parts(&file).unwrap();
        assert_eq!(parts.len(), GROUPS as usize);
        let mut saved = Vec::new();
        for part in parts {
            let (_, table) = read_snapshot(part.body).unwrap();
            let share = part.header.share.unwrap();
            assert_eq!(table.ownership().slots(), &share.slots);
            saved.extend(table.list("", None, 100).into_iter().map(|lock| lock.name.to_string()));
        }
        saved.sort_unstable();
        assert_eq!(saved, held, "through node {node}");
    }
    let mut client = ClusterServiceClient::new(channel(&cluster, 0).await);
    let unknown = SaveSnapshotRequest { group: GROUPS + 1 };
    let refusal = client.save_snapshot(unknown).await.unwrap_err();
    assert_eq!(reason(&refusal), Reason::WrongGroup, "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_one_group_tells_no_map() {
    let cluster = Cluster::start(1).await;
    let opening = opening(&new_session(), 0);
    let opened = cluster.client(0).await.open_session(opening).await.unwrap().into_inner();
    assert_eq!(opened.map, None);
}
