//! The limits of the whole lock table, as clients and operators meet them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod support;

use holdfast_proto::failure::REASON_KEY;
use holdfast_proto::v1::operator_service_client::OperatorServiceClient;
use holdfast_proto::v1::{
    AcquireRequest, ClusterStatusRequest, GroupStatus, Intervention, OpenSessionRequest,
    ReleaseOutcome, ReleaseRequest, SetLimitsRequest, acquire_response,
};
use support::{Client, Cluster, acquire, eventually, http_get, open};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

fn reason(status: &Status) -> String {
    let reason = status.metadata().get(REASON_KEY);
    reason.map(|reason| reason.to_str().unwrap().to_owned()).unwrap_or_default()
}

async fn operator(cluster: &Cluster, node: usize) -> OperatorServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", cluster.address(node))).unwrap();
    OperatorServiceClient::new(endpoint.connect().await.unwrap())
}

fn limits(bytes: Option<u64>, locks: Option<u64>) -> SetLimitsRequest {
    let intervention = Intervention { by: "olga".into(), reason: "a test".into() };
    SetLimitsRequest { intervention: Some(intervention), bytes, locks }
}

async fn group(client: &mut Client) -> GroupStatus {
    let status = client.cluster_status(ClusterStatusRequest::default()).await.unwrap();
    status.into_inner().groups.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_table_refuses_new_locks_and_an_operator_can_raise_the_limit() {
    let cluster = Cluster::start(3).await;
    // The node that is asked does not lead, so that all of it is passed on.
    let node = cluster.a_follower().await;
    let mut client = cluster.client(node).await;
    let mut operator = operator(&cluster, node).await;
    let before = group(&mut client).await;
    assert_eq!((before.table_bytes_limit, before.locks_limit), (1 << 30, 1_000_000));
    eventually("the rules are adopted", async || {
        (group(&mut client).await.rules_version >= 2).then_some(())
    })
    .await;

    for wrong in [limits(None, None), limits(Some(1), None), limits(None, Some(0))] {
        let refused = operator.set_limits(wrong).await.unwrap_err();
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::InvalidArgument, "invalid_limits")
        );
    }
    operator.set_limits(limits(Some(128 << 10), Some(3))).await.unwrap();

    // No more locks.
    let session = open(&mut client, 60_000).await;
    let mut grants = Vec::new();
    for request_id in 1..=3 {
        let request = acquire(&session, request_id, &format!("lock {request_id}"), 0);
        match client.acquire(request).await.unwrap().into_inner().outcome {
            Some(acquire_response::Outcome::Granted(grant)) => grants.push(grant),
            other => panic!("not granted: {other:?}"),
        }
    }
    let one_more = acquire(&session, 4, "lock 4", 0);
    let refused = client.acquire(one_more.clone()).await.unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::ResourceExhausted, "too_many_locks")
    );
    assert!(refused.message().contains("holdfast cluster limits --locks"), "{refused:?}");

    // Ways out: a release, and a higher limit. The same request id is carried out then.
    let grant = grants.remove(0);
    let release = ReleaseRequest {
        session_id: session.clone(),
        request_id: 5,
        name: grant.name,
        token: grant.token,
        ..Default::default()
    };
    let released = client.release(release).await.unwrap().into_inner();
    assert_eq!(released.outcome(), ReleaseOutcome::Released);
    client.acquire(one_more).await.unwrap();
    client.acquire(acquire(&session, 6, "lock 6", 0)).await.unwrap_err();
    operator.set_limits(limits(None, Some(1_000))).await.unwrap();
    client.acquire(acquire(&session, 7, "lock 7", 0)).await.unwrap();

    // One session takes a quarter of the bytes, many sessions take all.
    let large = |session: &str, request_id: u64| AcquireRequest {
        metadata: vec![7; 1_024],
        ..acquire(session, request_id, &format!("{request_id} {}", "x".repeat(400)), 0)
    };
    let mut reasons: Vec<String> = Vec::new();
    let mut request_id = 100;
    for _ in 0..8 {
        let session_id = support::new_session();
        let opening = OpenSessionRequest { session_id: session_id.clone(), ..Default::default() };
        let refused = match client.open_session(opening).await {
            Err(refused) => refused,
            Ok(_) => loop {
                request_id += 1;
                if let Err(refused) = client.acquire(large(&session_id, request_id)).await {
                    break refused;
                }
            },
        };
        reasons.push(reason(&refused));
        if reasons.last().is_some_and(|last| last == "too_many_bytes") {
            break;
        }
    }
    assert_eq!(reasons.first().map(String::as_str), Some("session_too_large"), "{reasons:?}");
    assert_eq!(reasons.last().map(String::as_str), Some("too_many_bytes"), "{reasons:?}");
    let full = group(&mut client).await;
    assert!(full.table_bytes <= full.table_bytes_limit, "{full:?}");
    assert!(full.table_bytes > full.table_bytes_limit * 8 / 10, "{full:?}");

    // All of it is on the page for Prometheus.
    let leader = cluster.leader(node).await;
    let page = eventually("the leader has counted", async || {
        let (_, page) = http_get(&cluster.http_address(leader), "/metrics").await;
        (!page.contains("holdfast_full_table_refusals_total{tier=\"correctness\"} 0"))
            .then_some(page)
    })
    .await;
    for metric in ["holdfast_table_bytes_limit 131072", "holdfast_locks_limit 1000"] {
        assert!(page.contains(metric), "{metric}");
    }
}
