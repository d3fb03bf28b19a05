//! What a client does with its streams, seen from the other end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use holdfast_client::{AcquireError, Client, Guard, ReleaseOutcome};
use holdfast_proto::v1::answer::Result as AnswerResult;
use holdfast_proto::v1::operation::Kind;
use holdfast_proto::v1::{
    Answer, CloseSessionResponse, HoldEnded, KeepAliveResponse, Notice, Reason, ReleaseResponse,
    ServerFrame, notice,
};
use support::{FakeNode, ServedStream, granted};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

async fn connected(node: &mut FakeNode) -> (Client, ServedStream) {
    let address = node.address.clone();
    let connecting = tokio::spawn(async move { Client::connect(&address).await });
    let stream = node.welcome().await;
    (connecting.await.unwrap().unwrap(), stream)
}

fn acquire(client: &Client) -> JoinHandle<Result<Guard, AcquireError>> {
    let request = client.lock("a").wait(Duration::from_secs(60));
    tokio::spawn(request.acquire())
}

#[tokio::test]
async fn a_node_with_a_full_disk_is_left_with_a_farewell_and_the_next_gets_the_same_request() {
    let mut node = FakeNode::start().await;
    let (client, mut stream) = connected(&mut node).await;
    let acquiring = acquire(&client);
    let (first, _) = stream.next_acquire().await;
    stream.send_back(first.request_id, Reason::OutOfSpace).await;

    let farewell = stream.next_frame().await.expect("a farewell before the end");
    assert!(farewell.operations.is_empty(), "{farewell:?}");
    assert_eq!(stream.next_frame().await, None);

    let mut next = node.welcome().await;
    let (again, _) = next.next_acquire().await;
    assert_eq!(again, first);
    next.answer(again.request_id, granted(7)).await;
    assert_eq!(acquiring.await.unwrap().unwrap().token(), Ok(7));
}

#[tokio::test]
async fn a_hold_lost_while_disconnected_is_reported_by_its_token_after_the_resume() {
    let mut node = FakeNode::start().await;
    let (client, mut stream) = connected(&mut node).await;
    let mut guards = Vec::new();
    for token in [7, 8] {
        let acquiring = acquire(&client);
        let (request, _) = stream.next_acquire().await;
        stream.answer(request.request_id, granted(token)).await;
        guards.push(acquiring.await.unwrap().unwrap());
    }
    drop(stream);

    let mut stream = node.welcome().await;
    let reported = |token| {
        let ended = HoldEnded { token, ..Default::default() };
        Notice { kind: Some(notice::Kind::HoldEnded(ended)) }
    };
    // The first was lost, and told, long ago.
    stream.send(ServerFrame { answers: Vec::new(), notices: vec![reported(3), reported(7)] }).await;
    timeout(Duration::from_secs(10), guards[0].lost()).await.unwrap();
    assert!(guards[0].token().is_err());
    assert_eq!(guards[1].token(), Ok(8));
}

#[tokio::test]
async fn a_session_that_lasts_goes_to_the_leader_and_takes_along_what_has_no_answer() {
    let (mut follower, mut leader) = (FakeNode::start().await, FakeNode::start().await);
    let address = follower.address.clone();
    let connecting = tokio::spawn(async move { Client::connect(&address).await });
    let mut stream = follower.welcome_on_behalf_of(&leader.address).await;
    let client = connecting.await.unwrap().unwrap();
    let acquiring = acquire(&client);
    let (first, _) = stream.next_acquire().await;

    let address = leader.address.clone();
    let mut next = leader.welcome_on_behalf_of(&address).await;
    let farewell = stream.next_frame().await.expect("a farewell before the end");
    assert!(farewell.operations.is_empty(), "{farewell:?}");
    let (again, _) = next.next_acquire().await;
    assert_eq!(again, first);
    next.answer(again.request_id, granted(7)).await;
    assert_eq!(acquiring.await.unwrap().unwrap().token(), Ok(7));
}

#[tokio::test]
async fn a_session_comes_back_from_a_leader_that_does_not_serve_it_and_then_stays() {
    let mut follower = FakeNode::start().await;
    let closed_door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let leader = closed_door.local_addr().unwrap().to_string();
    let address = follower.address.clone();
    let connecting = tokio::spawn(async move { Client::connect(&address).await });
    let stream = follower.welcome_on_behalf_of(&leader).await;
    let client = connecting.await.unwrap().unwrap();
    // It is greeted, and then called.
    for _ in 0..2 {
        drop(closed_door.accept().await.unwrap());
    }
    tokio::spawn(async move { while closed_door.accept().await.is_ok() {} });
    drop(stream);

    let mut stream = follower.welcome_on_behalf_of(&leader).await;
    let another = timeout(Duration::from_secs(1), follower.next_stream()).await;
    assert!(another.is_err(), "it goes back and forth");
    let acquiring = acquire(&client);
    let (request, _) = stream.next_acquire().await;
    stream.answer(request.request_id, granted(7)).await;
    assert_eq!(acquiring.await.unwrap().unwrap().token(), Ok(7));
}

/// Something in between that waits for HTTP, or a node that stood still for a moment.
#[tokio::test]
async fn a_node_that_does_not_answer_the_greeting_is_called_over_grpc() {
    let mut node = FakeNode::start().await;
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = between.local_addr().unwrap().to_string();
    let behind = node.address.clone();
    tokio::spawn(async move {
        let _silent = between.accept().await.unwrap();
        let (mut called, _) = between.accept().await.unwrap();
        let mut node = TcpStream::connect(behind).await.unwrap();
        tokio::io::copy_bidirectional(&mut called, &mut node).await
    });
    let connecting = tokio::spawn(async move { Client::connect(&address).await });
    let _stream = node.welcome().await;
    connecting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_hello_that_is_not_answered_is_taken_back_with_a_farewell_and_the_next_is_newer() {
    let mut node = FakeNode::start().await;
    let address = node.address.clone();
    let connecting = tokio::spawn(async move { Client::connect(&address).await });
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut silent = node.next_stream().await;
        let hello = silent.next_frame().await.expect("a hello");
        let Some(holdfast_proto::v1::operation::Kind::Open(open)) = &hello.operations[0].kind
        else {
            panic!("not an open: {hello:?}");
        };
        ids.push(open.request_id);
        let farewell = silent.next_frame().await.expect("a farewell before the end");
        assert!(farewell.operations.is_empty(), "{farewell:?}");
        assert_eq!(silent.next_frame().await, None);
    }
    assert!(ids[0] < ids[1], "{ids:?}");
    let _stream = node.welcome().await;
    connecting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_frame_of_more_than_four_mebibytes_is_read() {
    let mut node = FakeNode::start().await;
    let (client, mut stream) = connected(&mut node).await;
    let acquiring = acquire(&client);
    let (request, _) = stream.next_acquire().await;
    let name = "x".repeat(512);
    let ended = HoldEnded { name, acquire_request_id: 99, ..Default::default() };
    let notice = Notice { kind: Some(notice::Kind::HoldEnded(ended)) };
    let notices = vec![notice; 15 * 1024 * 2];
    stream.send(ServerFrame { answers: Vec::new(), notices }).await;
    stream.answer(request.request_id, granted(7)).await;
    assert_eq!(acquiring.await.unwrap().unwrap().token(), Ok(7));
}

#[tokio::test]
async fn a_retry_carries_the_mark_of_its_own_time_past_what_waits() {
    let mut node = FakeNode::start().await;
    let (client, mut stream) = connected(&mut node).await;
    let (queued, when_queued) = oneshot::channel();
    let request = client.lock("a").wait(Duration::from_secs(60));
    let _waiting = tokio::spawn(request.on_queued(|_| queued.send(()).unwrap()).acquire());
    let (waiting, _) = stream.next_acquire().await;
    stream.queued(waiting.request_id).await;
    when_queued.await.unwrap();

    let acquiring = acquire(&client);
    let (other, mark) = stream.next_acquire().await;
    assert!(mark >= waiting.request_id, "the wait holds the mark at {mark}");
    let third = acquire(&client);
    let (third_request, _) = stream.next_acquire().await;
    stream.answer(other.request_id, granted(7)).await;
    let _guard = acquiring.await.unwrap().unwrap();
    stream.send_back(third_request.request_id, Reason::TooManyUnacknowledged).await;

    let (again, mark) = stream.next_acquire().await;
    assert_eq!((again.request_id, mark), (third_request.request_id, other.request_id));
    stream.answer(again.request_id, granted(8)).await;
    third.await.unwrap().unwrap();
}

#[tokio::test]
async fn ten_thousand_locks_are_kept_alive_by_one_heartbeat_in_a_third_of_the_ttl() {
    const LOCKS: u64 = 10_000;
    const TTL_MS: u64 = 1_500;
    let mut node = FakeNode::start().await;
    let address = node.address.clone();
    let connecting = tokio::spawn(async move { Client::connect(&address).await });
    let mut stream = node.welcome_for(TTL_MS).await;
    let client = connecting.await.unwrap().unwrap();
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..LOCKS {
        asking.spawn(client.lock(format!("lock-{number}")).acquire());
    }
    let (mut granted_count, mut frames) = (0, 0);
    while granted_count < LOCKS {
        let frame = stream.next_frame().await.expect("a frame");
        frames += 1;
        let answers = frame.operations.iter().map(|operation| match &operation.kind {
            Some(Kind::Acquire(acquire)) => {
                granted_count += 1;
                let result = Some(granted(acquire.request_id));
                Answer { request_id: acquire.request_id, result }
            }
            Some(Kind::KeepAlive(heartbeat)) => kept_alive(heartbeat.request_id),
            other => panic!("{other:?}"),
        });
        let answers = answers.collect();
        stream.send(ServerFrame { answers, notices: Vec::new() }).await;
    }
    assert!(frames < LOCKS / 10, "{frames} frames: one carries many operations");
    let mut guards = Vec::new();
    while let Some(guard) = asking.join_next().await {
        guards.push(guard.unwrap().unwrap());
    }
    let mut received = Vec::new();
    while received.len() < 7 {
        let frame = stream.next_frame().await.expect("a frame");
        let [operation] = &frame.operations[..] else { panic!("{frame:?}") };
        let Some(Kind::KeepAlive(heartbeat)) = &operation.kind else { panic!("{operation:?}") };
        received.push(std::time::Instant::now());
        let answers = vec![kept_alive(heartbeat.request_id)];
        stream.send(ServerFrame { answers, notices: Vec::new() }).await;
    }
    // The first may have waited for the grants to be taken in, and the second is counted from its sending.
    let took = received[6] - received[1];
    assert!(took >= Duration::from_millis(5 * TTL_MS / 3).mul_f64(0.9), "{took:?}");
    assert!(guards.iter().all(|guard| guard.token().is_ok()));
}

#[tokio::test]
async fn a_close_does_not_wait_for_the_releases_that_it_makes_superfluous() {
    const LOCKS: u64 = 2_000;
    let mut node = FakeNode::start().await;
    let (client, mut stream) = connected(&mut node).await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..LOCKS {
        asking.spawn(client.lock(format!("lock-{number}")).acquire());
    }
    let mut guards = Vec::new();
    while guards.len() < LOCKS as usize {
        let frame = stream.next_frame().await.expect("a frame");
        for operation in frame.operations {
            let Some(Kind::Acquire(acquire)) = operation.kind else { panic!("{operation:?}") };
            stream.answer(acquire.request_id, granted(acquire.request_id)).await;
            guards.push(asking.join_next().await.unwrap().unwrap().unwrap());
        }
    }
    let awaited = guards.pop().unwrap();
    let leaving = tokio::spawn(async move {
        tokio::join!(awaited.release(), async move {
            drop(guards);
            client.close().await
        })
    });

    // The program awaits one of them; the close gives all others back.
    let frame = stream.next_frame().await.expect("a frame");
    let kinds: Vec<_> = frame.operations.into_iter().filter_map(|one| one.kind).collect();
    let [Kind::Release(release), Kind::Close(close)] = &kinds[..] else {
        panic!("{} operations, the first of them {:?}", kinds.len(), kinds.first());
    };
    let released = ReleaseResponse {
        outcome: holdfast_proto::v1::ReleaseOutcome::Released.into(),
        ..Default::default()
    };
    stream.answer(release.request_id, AnswerResult::Release(released)).await;
    let closed = AnswerResult::Close(CloseSessionResponse::default());
    stream.answer(close.request_id, closed).await;
    let (released, closed) = leaving.await.unwrap();
    assert_eq!(released.unwrap(), ReleaseOutcome::Released);
    closed.unwrap();
}

fn kept_alive(request_id: u64) -> Answer {
    let answer = KeepAliveResponse { ttl_ms: 1_500, ..Default::default() };
    Answer { request_id, result: Some(AnswerResult::KeepAlive(answer)) }
}

#[tokio::test]
async fn a_node_that_takes_nothing_more_is_left_before_the_session_ends_for_want_of_heartbeats() {
    const TTL: Duration = Duration::from_secs(4);
    let mut node = FakeNode::start().await;
    let address = node.address.clone();
    let connecting =
        tokio::spawn(async move { Client::builder().ttl(TTL).connect(&address).await });
    let deaf = node.welcome_for(4_000).await;
    let client = connecting.await.unwrap().unwrap();
    // More than the connection takes ahead, and none of it has to be answered soon.
    let waiting: Vec<_> = (0..20_000)
        .map(|number| {
            let request = client.lock(format!("lock-{number}")).wait(Duration::from_secs(3_600));
            tokio::spawn(request.metadata(vec![0; 1_000]).acquire())
        })
        .collect();
    tokio::time::timeout(TTL, node.next_stream()).await.expect("it looks for another stream");
    drop(deaf);
    waiting.iter().for_each(JoinHandle::abort);
}
