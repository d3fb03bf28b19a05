//! Sessions that are used by unary calls alone, by clients that say no more than they must.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use holdfast_proto::failure::REASON_KEY;
use holdfast_proto::v1::election_service_client::ElectionServiceClient;
use holdfast_proto::v1::{
    AcquireAllRequest, AcquireRequest, CampaignRequest, ClusterStatusRequest, ConvertRequest,
    Grant, Member, Mode, ReleaseOutcome, ReleaseRequest, StatusRequest, Tier, acquire_response,
};
use support::{Client, Cluster, PATIENCE, acquire, connect, eventually, open};
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic::{Request, Status};

/// More than twice as many as the answers that a session may leave unacknowledged.
const PAIRS: u64 = 10_000;
/// Operations of the efficiency tier do not keep a session alive.
const HOUR_MS: u64 = 3_600_000;

fn reason(status: &Status) -> String {
    let reason = status.metadata().get(REASON_KEY);
    reason.map(|reason| reason.to_str().unwrap().to_owned()).unwrap_or_default()
}

async fn granted(client: &mut Client, request: AcquireRequest) -> Result<Grant, Status> {
    match client.acquire(request).await?.into_inner().outcome {
        Some(acquire_response::Outcome::Granted(grant)) => Ok(grant),
        other => panic!("not granted: {other:?}"),
    }
}

async fn take_and_give_back(client: &mut Client, session: &str, first_id: u64, tier: Tier) {
    let mut request = acquire(session, first_id, &format!("lock {}", first_id % 8), 0);
    request.tier = tier.into();
    let grant = granted(client, request).await.expect("the acquire is refused");
    let release = ReleaseRequest {
        session_id: session.to_owned(),
        request_id: first_id + 1,
        name: grant.name,
        token: grant.token,
        tier: tier.into(),
        ..Default::default()
    };
    let released = client.release(release).await.expect("the release is refused").into_inner();
    assert_eq!(released.outcome(), ReleaseOutcome::Released, "request {}", first_id + 1);
}

/// Four at a time, each with every fourth id of those that are left: the ids rise, and arrive in no strict order.
async fn take_and_give_back_often(client: &Client, session: &str, tier: Tier) {
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..4 {
        let (mut client, session) = (client.clone(), session.to_owned());
        tasks.spawn(async move {
            for pair in (worker..PAIRS).step_by(4) {
                take_and_give_back(&mut client, &session, 2 * pair + 3, tier).await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_unary_calls_without_acknowledgements_goes_on_for_ever() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, HOUR_MS).await;
    take_and_give_back(&mut client, &session, 1, Tier::Correctness).await;
    take_and_give_back_often(&client, &session, Tier::Correctness).await;

    // The first acquire is not carried out a second time.
    let retried = client.acquire(acquire(&session, 1, "lock 1", 0)).await.unwrap_err();
    assert_eq!(reason(&retried), "answer_discarded", "{retried:?}");

    // One of the newest is answered as it was.
    let last = granted(&mut client, acquire(&session, 30_001, "last", 0)).await.unwrap();
    let again = granted(&mut client, acquire(&session, 30_001, "last", 0)).await.unwrap();
    assert_eq!(last.token, again.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_unary_calls_of_the_efficiency_tier_goes_on_for_ever() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let session = open(&mut client, HOUR_MS).await;
    take_and_give_back(&mut client, &session, 1, Tier::Efficiency).await;
    take_and_give_back_often(&client, &session, Tier::Efficiency).await;
}

fn release_request(session: &str, request_id: u64, grant: &Grant) -> ReleaseRequest {
    ReleaseRequest {
        session_id: session.to_owned(),
        request_id,
        name: grant.name.clone(),
        token: grant.token,
        ..Default::default()
    }
}

async fn waiter_count(client: &mut Client, name: &str) -> u64 {
    let request = StatusRequest { name: name.to_owned(), request_id: 0 };
    client.status(request).await.unwrap().into_inner().waiter_count
}

async fn until_waiters_are(client: &mut Client, name: &str, count: u64) {
    eventually(&format!("{count} wait for {name}"), async || {
        (waiter_count(client, name).await == count).then_some(())
    })
    .await;
}

/// The rules under which abandoned calls are undone are adopted soon after the first election.
async fn until_rules_are_adopted(client: &mut Client) {
    eventually("the rules are adopted", async || {
        let request = ClusterStatusRequest { own_view: true, ..Default::default() };
        let status = client.cluster_status(request).await.unwrap().into_inner();
        (status.groups[0].rules_version >= 2).then_some(())
    })
    .await;
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Acquire,
    AcquireAll,
    Campaign,
}

/// Waits for the lock until the caller gives up, which is when this is dropped or its deadline passes.
async fn wait_in_vain(
    address: String,
    session: String,
    verb: Verb,
    deadline: Option<Duration>,
) -> Result<(), Status> {
    let mut client = connect(&address).await;
    let name = "wallet".to_owned();
    let wait_ms = 60_000;
    let answered = match verb {
        Verb::Acquire => {
            let mut request = Request::new(acquire(&session, 7, &name, wait_ms));
            deadline.into_iter().for_each(|deadline| request.set_timeout(deadline));
            client.acquire(request).await
        }
        Verb::AcquireAll => {
            let member = |name: &str| Member { name: name.into(), ..Default::default() };
            let mut request = Request::new(AcquireAllRequest {
                session_id: session,
                request_id: 7,
                members: vec![member(&name), member("other")],
                wait_ms,
                ..Default::default()
            });
            deadline.into_iter().for_each(|deadline| request.set_timeout(deadline));
            client.acquire_all(request).await
        }
        Verb::Campaign => {
            let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
            let mut election = ElectionServiceClient::new(endpoint.connect().await.unwrap());
            let mut request = Request::new(CampaignRequest {
                session_id: session,
                request_id: 7,
                name,
                wait_ms,
                ..Default::default()
            });
            deadline.into_iter().for_each(|deadline| request.set_timeout(deadline));
            election.campaign(request).await
        }
    };
    answered.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unary_call_that_is_given_up_leaves_no_waiter_and_no_hold() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader(0).await;
    let mut client = cluster.client(leader).await;
    until_rules_are_adopted(&mut client).await;
    let follower = cluster.a_follower().await;
    let holder = open(&mut client, 60_000).await;
    let grant = granted(&mut client, acquire(&holder, 1, "wallet", 0)).await.unwrap();

    for node in [leader, follower] {
        for verb in [Verb::Acquire, Verb::AcquireAll, Verb::Campaign] {
            // The deadline passes.
            let session = open(&mut client, 60_000).await;
            let deadline = Some(Duration::from_millis(300));
            let ended = wait_in_vain(cluster.address(node), session.clone(), verb, deadline).await;
            assert!(ended.is_err(), "{verb:?} at node {node}");
            until_waiters_are(&mut client, "wallet", 0).await;

            // The caller hangs up.
            let waiting =
                tokio::spawn(wait_in_vain(cluster.address(node), session.clone(), verb, None));
            until_waiters_are(&mut client, "wallet", 1).await;
            waiting.abort();
            until_waiters_are(&mut client, "wallet", 0).await;
        }
    }

    // Nothing is left that could be granted.
    client.release(release_request(&holder, 2, &grant)).await.unwrap();
    let request = StatusRequest { name: "wallet".to_owned(), request_id: 0 };
    let status = client.status(request).await.unwrap().into_inner();
    assert_eq!((status.holder_count, status.waiter_count), (0, 0), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_convert_that_is_given_up_leaves_no_waiter_and_the_hold_as_it_was() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    until_rules_are_adopted(&mut client).await;
    let mut readers = Vec::new();
    for _ in 0..2 {
        let session = open(&mut client, 60_000).await;
        let mut shared = acquire(&session, 1, "wallet", 0);
        shared.mode = Mode::Shared.into();
        let grant = granted(&mut client, shared).await.unwrap();
        readers.push((session, grant));
    }
    let (session, held) = &readers[1];
    let convert = |request_id| ConvertRequest {
        session_id: session.clone(),
        request_id,
        name: "wallet".to_owned(),
        token: held.token,
        mode: Mode::Exclusive.into(),
        wait_ms: 60_000,
        ..Default::default()
    };
    // The deadline passes.
    let mut request = Request::new(convert(2));
    request.set_timeout(Duration::from_millis(300));
    client.convert(request).await.unwrap_err();
    until_waiters_are(&mut client, "wallet", 0).await;
    // The caller hangs up.
    let (mut other, request) = (cluster.client(0).await, convert(3));
    let waiting = tokio::spawn(async move { other.convert(request).await });
    until_waiters_are(&mut client, "wallet", 1).await;
    waiting.abort();
    until_waiters_are(&mut client, "wallet", 0).await;

    // The other reader goes, and nothing is converted.
    let (first, grant) = &readers[0];
    client.release(release_request(first, 2, grant)).await.unwrap();
    let request = StatusRequest { name: "wallet".to_owned(), request_id: 0 };
    let status = client.status(request).await.unwrap().into_inner();
    let holders: Vec<_> = status.holders.iter().map(|it| (it.token, it.mode())).collect();
    assert_eq!(holders, [(held.token, Mode::Shared)], "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unary_call_that_will_be_resumed_keeps_its_place() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    until_rules_are_adopted(&mut client).await;
    let (holder, session) = (open(&mut client, 60_000).await, open(&mut client, 60_000).await);
    let grant = granted(&mut client, acquire(&holder, 1, "wallet", 0)).await.unwrap();

    let resumed = AcquireRequest { resume_later: true, ..acquire(&session, 7, "wallet", 60_000) };
    let mut request = Request::new(resumed.clone());
    request.set_timeout(Duration::from_millis(200));
    client.acquire(request).await.unwrap_err();
    // Behind it in the queue, so that a place that was lost would show.
    let mut other = client.clone();
    let rival = open(&mut client, 60_000).await;
    let behind =
        tokio::spawn(
            async move { granted(&mut other, acquire(&rival, 1, "wallet", 60_000)).await },
        );
    until_waiters_are(&mut client, "wallet", 2).await;

    client.release(release_request(&holder, 2, &grant)).await.unwrap();
    let first = granted(&mut client, resumed).await.unwrap();
    assert!(!behind.is_finished());
    client.release(release_request(&session, 8, &first)).await.unwrap();
    assert!(behind.await.unwrap().unwrap().token > first.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_a_call_that_was_given_up_is_carried_out() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    until_rules_are_adopted(&mut client).await;
    let (holder, session) = (open(&mut client, 60_000).await, open(&mut client, 60_000).await);
    let mut grant = granted(&mut client, acquire(&holder, 1, "wallet", 0)).await.unwrap();

    for round in 0..20_u64 {
        // The old call ends at about the time at which the retry comes, on another connection.
        let request = acquire(&session, 100 + round, "wallet", 60_000);
        let (mut old, first) = (cluster.client(0).await, request.clone());
        let old = tokio::spawn(async move { old.acquire(first).await });
        until_waiters_are(&mut client, "wallet", 1).await;
        let mut retry = cluster.client(0).await;
        let retried = tokio::spawn(async move { granted(&mut retry, request).await });
        old.abort();
        if round % 2 == 0 {
            until_waiters_are(&mut client, "wallet", 1).await;
        }
        let release = release_request(&holder, 2 * round + 2, &grant);
        client.release(release).await.unwrap();
        let held = timeout(PATIENCE, retried).await.expect("the retry waits").unwrap().unwrap();

        // It is held, and stays so: the end of the old call does not undo what the retry was granted.
        let request = StatusRequest { name: "wallet".to_owned(), request_id: 0 };
        let status = client.status(request).await.unwrap().into_inner();
        let tokens: Vec<u64> = status.holders.iter().map(|holder| holder.token).collect();
        assert_eq!(tokens, [held.token], "round {round}");
        client.release(release_request(&session, 200 + round, &held)).await.unwrap();
        let again = acquire(&holder, 2 * round + 3, "wallet", 0);
        grant = granted(&mut client, again).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_the_efficiency_tier_that_is_given_up_leaves_no_waiter() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let (holder, session) = (open(&mut client, 60_000).await, open(&mut client, 60_000).await);
    let efficient =
        |request: AcquireRequest| AcquireRequest { tier: Tier::Efficiency.into(), ..request };
    granted(&mut client, efficient(acquire(&holder, 1, "wallet", 0))).await.unwrap();
    let mut request = Request::new(efficient(acquire(&session, 7, "wallet", 60_000)));
    request.set_timeout(Duration::from_millis(200));
    client.acquire(request).await.unwrap_err();
    eventually("no client waits", async || {
        let request = StatusRequest { name: "wallet".to_owned(), request_id: 0 };
        let status = client.status(request).await.unwrap().into_inner();
        status.efficiency.is_some_and(|tier| tier.waiter_count == 0).then_some(())
    })
    .await;
}
