//! Looking at a lock on the stream of a session.

use std::time::Duration;

use holdfast_client::unary::CallError;
use holdfast_client::{Client, Tier};
use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::{ClientFrame, OpenSessionRequest, Operation, Reason, StatusRequest};
use tokio::task::JoinSet;

use crate::support::{Cluster, PlainClient, eventually};

const LONG: Duration = Duration::from_secs(30);

async fn tokens(client: &Client, name: &str) -> Vec<u64> {
    let status = client.status(name).await.unwrap();
    assert_eq!(status.name, name);
    status.holders.iter().map(|holder| holder.token).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_looks_sees_every_grant_and_release_that_was_answered_before_at_whichever_node() {
    let mut cluster = Cluster::start(3).await;
    let writer = Client::connect(&cluster.endpoints()).await.unwrap();
    let mut readers = Vec::new();
    for node in 1..=3 {
        readers.push(Client::connect(&cluster.client_address(node)).await.unwrap());
    }
    for _ in 0..20 {
        let guard = writer.lock("wallet").acquire().await.unwrap();
        for reader in &readers {
            assert_eq!(tokens(reader, "wallet").await, [guard.token().unwrap()]);
        }
        guard.release().await.unwrap();
        for reader in &readers {
            assert!(tokens(reader, "wallet").await.is_empty());
        }
    }
    // A read that was under way when the leader was killed is asked again.
    let guard = writer.lock("wallet").acquire().await.unwrap();
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let token = guard.token().unwrap();
    for (node, reader) in (1..).zip(&readers) {
        if node != leader {
            let seen =
                eventually("it is seen", LONG, async || reader.status("wallet").await.ok()).await;
            assert_eq!(seen.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [token]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_looks_is_told_of_both_tiers_of_wrong_names_and_without_a_session_as_well() {
    let cluster = Cluster::start(1).await;
    let client = Client::connect(&cluster.endpoints()).await.unwrap();
    let _quick = client.lock("a").tier(Tier::Efficiency).wait(LONG).acquire().await.unwrap();
    let status = client.status("a").await.unwrap();
    assert_eq!((status.holder_count, status.efficiency.unwrap().holder_count), (0, 1));

    for name in ["", "a\u{7}b"] {
        let refused = client.status(name).await.unwrap_err();
        let CallError::Rejected(rejection) = &refused else { panic!("{refused:?}") };
        assert_eq!(rejection.reason, Reason::InvalidName, "{name:?}");
        assert!(!refused.may_have_happened());
    }

    let mut looking = JoinSet::new();
    for number in 0..500 {
        let client = client.clone();
        looking.spawn(async move {
            let name = format!("lock-{number}");
            assert_eq!(client.status(&name).await.unwrap().name, name);
        });
    }
    looking.join_all().await;

    let clone = client.clone();
    client.close().await.unwrap();
    assert_eq!(clone.status("a").await.unwrap().holder_count, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_stream_has_so_many_looks_under_way_and_the_rest_is_told_to_come_again() {
    const ASKED: u64 = 4_000;
    let cluster = Cluster::start(1).await;
    let client = Client::connect(&cluster.endpoints()).await.unwrap();
    let _held = client.lock("a").metadata(vec![7; 1_024]).acquire().await.unwrap();
    let open = Kind::Open(OpenSessionRequest {
        session_id: holdfast_proto::SessionId::random().unwrap().to_secret_text(),
        request_id: 1,
        ..OpenSessionRequest::default()
    });
    let look = |request_id| Kind::Status(StatusRequest { name: "a".into(), request_id });
    let kinds = std::iter::once(open).chain((2..ASKED + 2).map(look));
    let operations = kinds.map(|kind| Operation { kind: Some(kind) }).collect();
    let frame = ClientFrame { acked_through: 0, operations };
    let (frames, outgoing) = tokio::sync::mpsc::channel(1);
    frames.send(frame).await.unwrap();
    let outgoing = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    let mut stub = PlainClient::new(vec![cluster.endpoints()]).stub();
    let mut answers = stub.session(outgoing).await.unwrap().into_inner();
    let (mut shown, mut refused) = (0, 0);
    while shown + refused < ASKED {
        for answer in answers.message().await.unwrap().unwrap().answers {
            match answer.result.unwrap() {
                AnswerResult::Status(status) => {
                    assert_eq!(status.holders[0].metadata.len(), 1_024);
                    shown += 1;
                }
                AnswerResult::Failure(failure) => {
                    assert_eq!(failure.reason(), Reason::Overloaded);
                    assert!(failure.retryable && !failure.may_have_happened);
                    refused += 1;
                }
                AnswerResult::Open(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(shown, 64);
}
