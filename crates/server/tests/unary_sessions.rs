//! Sessions that are used by unary calls alone, by clients that say no more than they must.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod support;

use holdfast_proto::failure::REASON_KEY;
use holdfast_proto::v1::{
    AcquireRequest, Grant, ReleaseOutcome, ReleaseRequest, Tier, acquire_response,
};
use support::{Client, Cluster, acquire, open};
use tonic::Status;

/// More than twice as many as the answers that a session may leave unacknowledged.
const PAIRS: u64 = 10_000;

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
    let session = open(&mut client, 60_000).await;
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
    let session = open(&mut client, 60_000).await;
    take_and_give_back(&mut client, &session, 1, Tier::Efficiency).await;
    take_and_give_back_often(&client, &session, Tier::Efficiency).await;
}
