//! A client of a cluster with several groups: its sessions, seen from the other end.
//!
//! The slot of `orders` is 138, and that of `wallet` is 2814.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

#[allow(dead_code, reason = "a part of the support is for other tests")]
mod support;

use std::time::Duration;

use holdfast_client::{AcquireError, Client, Guard, LossReason};
use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::{
    CloseSessionResponse, EndReason, Failure, GroupMap, GroupRoute, Notice, OpenSessionResponse,
    Reason, ReleaseOutcome, ReleaseResponse, ServerFrame, SessionEnded, SlotRun, notice,
};
use support::{FakeNode, ServedStream, granted};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);

/// The leaders of the root group and of group 2.
struct Cluster {
    root: FakeNode,
    second: FakeNode,
}

impl Cluster {
    async fn start() -> Cluster {
        Cluster { root: FakeNode::start().await, second: FakeNode::start().await }
    }

    /// Group 2 owns the slots from here on.
    fn welcome(&self, epoch: u64, second_from: u32) -> OpenSessionResponse {
        let route = |group, node: &FakeNode, first, count| {
            let (leader, slots) = (node.address.clone(), vec![SlotRun { first, count }]);
            GroupRoute { group, leader, slots }
        };
        let groups = vec![
            route(1, &self.root, 0, second_from),
            route(2, &self.second, second_from, 4_096 - second_from),
        ];
        let map = Some(GroupMap { epoch, groups });
        OpenSessionResponse { ttl_ms: 30_000, linger_ms: 30_000, map, ..Default::default() }
    }

    /// The client, its stream in the root group, and the id of its session there.
    async fn connect(&mut self, second_from: u32) -> (Client, ServedStream, String) {
        let address = self.root.address.clone();
        let connecting = tokio::spawn(async move { Client::connect(&address).await });
        let welcome = self.welcome(1, second_from);
        let (stream, hello) = self.root.welcome_telling(welcome).await;
        let Kind::Open(open) = hello else { panic!("not an open: {hello:?}") };
        assert_eq!(open.group, 0);
        (connecting.await.unwrap().unwrap(), stream, open.session_id)
    }

    /// The guards of `orders` and `wallet`, with the tokens 7 and 8, and the stream in group 2.
    async fn hold_both(&mut self, client: &Client, root: &mut ServedStream) -> Held {
        let orders = acquire_on(client, "orders", root, 7).await;
        let acquiring = acquire(client, "wallet");
        let welcome = self.welcome(1, 2_000);
        let (mut second, hello) = self.second.welcome_telling(welcome).await;
        let Kind::Open(open) = hello else { panic!("not an open: {hello:?}") };
        assert_eq!(open.group, 2);
        let (request, _) = second.next_acquire().await;
        second.answer(request.request_id, granted(8)).await;
        let wallet = acquiring.await.unwrap().unwrap();
        Held { orders, wallet, second, second_id: open.session_id }
    }
}

struct Held {
    orders: Guard,
    wallet: Guard,
    second: ServedStream,
    second_id: String,
}

fn acquire(client: &Client, name: &str) -> tokio::task::JoinHandle<Result<Guard, AcquireError>> {
    tokio::spawn(client.lock(name).wait(Duration::from_secs(60)).acquire())
}

async fn acquire_on(client: &Client, name: &str, stream: &mut ServedStream, token: u64) -> Guard {
    let acquiring = acquire(client, name);
    let (request, _) = stream.next_acquire().await;
    assert_eq!(request.name, name);
    stream.answer(request.request_id, granted(token)).await;
    acquiring.await.unwrap().unwrap()
}

async fn refuse(stream: &mut ServedStream, request_id: u64, map_epoch: u64) {
    let failure = Failure { reason: Reason::WrongGroup.into(), map_epoch, ..Default::default() };
    stream.answer(request_id, AnswerResult::Failure(failure)).await;
}

async fn next_operation(stream: &mut ServedStream) -> Kind {
    let frame = stream.next_frame().await.expect("a frame");
    frame.operations.first().expect("an operation").kind.clone().unwrap()
}

#[tokio::test]
async fn a_client_has_a_session_with_one_id_in_each_group_whose_locks_it_uses() {
    let mut cluster = Cluster::start().await;
    let (client, mut root, id) = cluster.connect(2_000).await;
    let mut held = cluster.hold_both(&client, &mut root).await;
    assert_eq!(held.second_id, id);
    assert_eq!((held.orders.token(), held.wallet.token()), (Ok(7), Ok(8)));

    // Each guard is released in the session that has the hold.
    let releasing = tokio::spawn(held.wallet.release());
    let Kind::Release(release) = next_operation(&mut held.second).await else {
        panic!("not a release")
    };
    assert_eq!(release.token, 8);
    let outcome = ReleaseOutcome::Released.into();
    let released = ReleaseResponse { outcome, ..Default::default() };
    held.second.answer(release.request_id, AnswerResult::Release(released)).await;
    releasing.await.unwrap().unwrap();

    // To close the client is to close all of them.
    let closing = tokio::spawn(client.close());
    for stream in [&mut root, &mut held.second] {
        let Kind::Close(close) = next_operation(stream).await else { panic!("not a close") };
        let closed = AnswerResult::Close(CloseSessionResponse::default());
        stream.answer(close.request_id, closed).await;
    }
    closing.await.unwrap().unwrap();
    assert_eq!(held.orders.lost().await, LossReason::SessionClosed);
}

#[tokio::test]
async fn the_end_of_a_session_in_one_group_leaves_the_locks_of_others_alone() {
    let mut cluster = Cluster::start().await;
    let (client, mut root, id) = cluster.connect(2_000).await;
    let mut held = cluster.hold_both(&client, &mut root).await;
    let kind = notice::Kind::SessionEnded(SessionEnded { reason: EndReason::Killed.into() });
    let notices = vec![Notice { kind: Some(kind) }];
    held.second.send(ServerFrame { answers: Vec::new(), notices }).await;
    assert_eq!(timeout(PATIENCE, held.wallet.lost()).await, Ok(LossReason::SessionKilled));
    assert_eq!(held.orders.token(), Ok(7));

    // The next lock of that group is asked for in a new session there. Any node serves it.
    let acquiring = acquire(&client, "wallet");
    let welcome = cluster.welcome(1, 2_000);
    let (mut second, hello) = cluster.root.welcome_telling(welcome).await;
    let Kind::Open(open) = hello else { panic!("not an open: {hello:?}") };
    assert_eq!(open.group, 2);
    assert_ne!(open.session_id, id);
    let (request, _) = second.next_acquire().await;
    second.answer(request.request_id, granted(9)).await;
    assert_eq!(acquiring.await.unwrap().unwrap().token(), Ok(9));
    assert_eq!(held.orders.token(), Ok(7));
}

#[tokio::test]
async fn a_refusal_by_a_newer_map_is_followed_to_the_group_that_owns_the_lock() {
    let mut cluster = Cluster::start().await;
    // By this map `wallet` is in the root group.
    let (client, mut root, _) = cluster.connect(3_000).await;
    let acquiring = acquire(&client, "wallet");
    let (request, _) = root.next_acquire().await;
    refuse(&mut root, request.request_id, 2).await;

    // The newer map comes with a fresh welcome; the old stream ends with a farewell.
    let welcome = cluster.welcome(2, 2_000);
    let (mut fresh, hello) = cluster.root.welcome_telling(welcome).await;
    assert!(matches!(hello, Kind::Resume(_)), "{hello:?}");
    let farewell = root.next_frame().await.expect("a farewell before the end");
    assert!(farewell.operations.is_empty(), "{farewell:?}");

    let welcome = cluster.welcome(2, 2_000);
    let (mut second, _) = cluster.second.welcome_telling(welcome).await;
    let (again, _) = second.next_acquire().await;
    assert_eq!((&*again.name, again.wait_ms > 50_000), ("wallet", true));
    second.answer(again.request_id, granted(8)).await;
    assert_eq!(acquiring.await.unwrap().unwrap().token(), Ok(8));

    // What was refused is not asked for again in the root group.
    let orders = acquire_on(&client, "orders", &mut fresh, 7).await;
    assert_eq!(orders.token(), Ok(7));
}

#[tokio::test]
async fn groups_that_never_agree_refuse_the_request_to_its_caller() {
    let mut cluster = Cluster::start().await;
    let (client, mut root, _) = cluster.connect(2_000).await;
    let acquiring = acquire(&client, "orders");
    let mut tries = 0;
    while !acquiring.is_finished() {
        let Ok(Some(frame)) = timeout(Duration::from_secs(2), root.next_frame()).await else {
            break;
        };
        let Some(Kind::Acquire(request)) = frame.operations[0].kind.clone() else { continue };
        refuse(&mut root, request.request_id, 1).await;
        tries += 1;
    }
    let refused = acquiring.await.unwrap().unwrap_err();
    let AcquireError::Rejected(rejection) = &refused else { panic!("{refused:?}") };
    assert_eq!(rejection.reason, Reason::WrongGroup);
    assert!(refused.is_retryable() && !refused.may_have_happened());
    assert!((2..20).contains(&tries), "{tries} tries");
}

#[tokio::test]
async fn an_acquire_all_in_several_groups_is_refused_before_it_is_sent() {
    let mut cluster = Cluster::start().await;
    let (client, mut root, _) = cluster.connect(2_000).await;
    let refused = client.lock_all(["orders", "wallet"]).acquire().await.unwrap_err();
    let AcquireError::Rejected(rejection) = &refused else { panic!("{refused:?}") };
    assert_eq!(rejection.reason, Reason::SeveralGroups);
    assert!(
        rejection.message.contains("{order}/orders and {order}/wallet"),
        "{}",
        rejection.message
    );
    // Nothing of it is on the stream.
    let orders = acquire_on(&client, "orders", &mut root, 7).await;
    assert_eq!(orders.token(), Ok(7));
}

#[tokio::test]
async fn a_closed_client_opens_no_session_in_another_group() {
    let mut cluster = Cluster::start().await;
    let (client, mut root, _) = cluster.connect(2_000).await;
    let clone = client.clone();
    let closing = tokio::spawn(client.close());
    let Kind::Close(close) = next_operation(&mut root).await else { panic!("not a close") };
    root.answer(close.request_id, AnswerResult::Close(CloseSessionResponse::default())).await;
    closing.await.unwrap().unwrap();
    let refused = clone.lock("wallet").acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::Closed), "{refused:?}");
}
