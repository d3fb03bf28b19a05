//! What nodes forward to the leader: clients of a node that do not read hold up no other client of it, and only members
//! forward.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use holdfast_proto::peer_v1::forward_service_client::ForwardServiceClient;
use holdfast_proto::peer_v1::peer_service_client::PeerServiceClient;
use holdfast_proto::peer_v1::{
    Caller, ForwardedAction, ForwardedFrame, Hello, PeerFrame, Protocol, Welcome,
};
use holdfast_proto::v1::watch_service_client::WatchServiceClient;
use holdfast_proto::v1::{
    AcquireRequest, ClientFrame, Failure, KeepAliveRequest, OpenSessionRequest, Operation,
    ProclaimRequest, Reason, ReleaseRequest, StatusRequest, WatchFrame, WatchRequest,
    acquire_response, answer, operation,
};
use prost::Message;
use support::{Cluster, OnStream, PATIENCE, data_dir_id, eventually, new_session};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

const METADATA_BYTES: usize = 1_024;
const NAME_BYTES: usize = 500;
/// More than one connection between nodes ever had in flight, with what a client's connection buffers.
const UNREAD_BYTES: usize = 24 * 1024 * 1024;
/// By which one node forwards to another.
const CONNECTIONS_PER_NODE: usize = 32;
/// Some of them share a connection between the nodes, however those are chosen.
const UNREAD: usize = CONNECTIONS_PER_NODE + 1;
const SESSIONS: usize = 2 * CONNECTIONS_PER_NODE;

async fn hold(stream: &mut OnStream, name: &str) -> u64 {
    let acquire = AcquireRequest {
        request_id: 2,
        name: name.into(),
        metadata: vec![b'm'; METADATA_BYTES],
        ..Default::default()
    };
    stream.send(vec![operation::Kind::Acquire(acquire)]).await;
    token(stream).await
}

async fn token(stream: &mut OnStream) -> u64 {
    let frame = stream.next().await.unwrap();
    match &frame.answers[..] {
        [answer] => match &answer.result {
            Some(answer::Result::Acquire(response)) => match &response.outcome {
                Some(acquire_response::Outcome::Granted(grant)) => grant.token,
                other => panic!("not granted: {other:?}"),
            },
            other => panic!("no answer to an acquire: {other:?}"),
        },
        answers => panic!("not one answer: {answers:?}"),
    }
}

/// Makes so many bytes of events, on a stream of its own at the leader.
async fn make_events(cluster: &Cluster, leader: usize, bytes: usize) {
    const PER_FRAME: usize = 256;
    let mut stream = OnStream::open(&mut cluster.client(leader).await, 0).await;
    let name = "n".repeat(NAME_BYTES);
    let token = hold(&mut stream, &name).await;
    let mut request_id = 3;
    for _ in 0..bytes / (NAME_BYTES + METADATA_BYTES) / PER_FRAME + 1 {
        let first = request_id;
        request_id += PER_FRAME as u64;
        let proclaims = (first..request_id).map(|request_id| {
            let (name, metadata) = (name.clone(), vec![b'p'; METADATA_BYTES]);
            operation::Kind::Proclaim(ProclaimRequest {
                request_id,
                name,
                token,
                metadata,
                ..Default::default()
            })
        });
        let operations = proclaims.map(|kind| Operation { kind: Some(kind) }).collect();
        let frame = ClientFrame { acked_through: first - 1, operations };
        stream.frames.send(frame).await.unwrap();
        let mut answers = 0;
        while answers < PER_FRAME {
            for answer in stream.next().await.unwrap().answers {
                let result = answer.result;
                assert!(matches!(result, Some(answer::Result::Proclaim(_))), "{result:?}");
                answers += 1;
            }
        }
    }
}

/// Each opens a session at this node, sends a heartbeat, acquires a lock and releases it.
async fn assert_sessions_are_served(cluster: &Cluster, node: usize) {
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        let mut client = cluster.client(node).await;
        sessions.spawn(async move {
            let mut stream = OnStream::open(&mut client, 0).await;
            let keep_alive = KeepAliveRequest { request_id: 10, ..Default::default() };
            stream.send(vec![operation::Kind::KeepAlive(keep_alive)]).await;
            assert_eq!(stream.next().await.unwrap().answers.len(), 1);
            let name = format!("served/{number}");
            let token = hold(&mut stream, &name).await;
            let release = ReleaseRequest { request_id: 11, name, token, ..Default::default() };
            stream.send(vec![operation::Kind::Release(release)]).await;
            assert_eq!(stream.next().await.unwrap().answers.len(), 1);
        });
    }
    while let Some(served) = sessions.join_next().await {
        served.expect("a session was held up by others that do not read");
    }
}

async fn watch(cluster: &Cluster, node: usize) -> Streaming<WatchFrame> {
    let address = format!("http://{}", cluster.address(node));
    let mut client = WatchServiceClient::connect(address).await.unwrap();
    let request = WatchRequest { without_snapshot: true, ..Default::default() };
    let mut frames = client.watch(request).await.unwrap().into_inner();
    timeout(PATIENCE, frames.message()).await.unwrap().unwrap().unwrap();
    frames
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_are_not_read_at_a_follower_hold_up_no_session_there() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader(0).await;
    let follower = (leader + 1) % 3;
    let mut unread = Vec::new();
    for _ in 0..UNREAD {
        unread.push(watch(&cluster, follower).await);
    }
    make_events(&cluster, leader, UNREAD_BYTES).await;
    assert_sessions_are_served(&cluster, follower).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_ask_and_never_read_at_a_follower_hold_up_no_other_there() {
    const LOOKS_PER_FRAME: usize = 32;
    /// If the follower takes nothing for so long, all that is between the client and the leader is full.
    const FULL_AFTER: Duration = Duration::from_secs(5);
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader(0).await;
    let follower = (leader + 1) % 3;
    let name = "n".repeat(NAME_BYTES);
    let mut holder = OnStream::open(&mut cluster.client(leader).await, 30_000).await;
    hold(&mut holder, &name).await;

    let mut filling = JoinSet::new();
    for _ in 0..UNREAD {
        let unread = OnStream::open(&mut cluster.client(follower).await, 30_000).await;
        let name = name.clone();
        filling.spawn(async move {
            for request_id in 2.. {
                let look = StatusRequest { request_id, name: name.clone() };
                let look = Operation { kind: Some(operation::Kind::Status(look)) };
                let operations = vec![look; LOOKS_PER_FRAME];
                let sending = unread.frames.send(ClientFrame { acked_through: 0, operations });
                // On a slow machine the node may lose patience first, and end the stream.
                if !matches!(timeout(FULL_AFTER, sending).await, Ok(Ok(()))) {
                    break;
                }
                let sent_bytes = request_id as usize * LOOKS_PER_FRAME * NAME_BYTES;
                assert!(sent_bytes < 8 * UNREAD_BYTES, "it reads nothing and is read without end");
            }
            unread
        });
    }
    let unread = filling.join_all().await;
    assert_sessions_are_served(&cluster, follower).await;
    drop(unread);
}

/// As node `node` of the cluster would do it, whose own process is not running.
struct Impostor {
    channel: Channel,
    ticket: Vec<u8>,
    cluster_id: String,
    /// The exchange lasts until this is dropped.
    _exchange: (mpsc::Sender<PeerFrame>, Streaming<Welcome>),
}

impl Impostor {
    async fn connect(address: String, hello: Hello) -> Impostor {
        let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let (frames, said) = mpsc::channel(1);
        frames.send(PeerFrame { hello: Some(hello) }).await.unwrap();
        let mut peer = PeerServiceClient::new(channel.clone());
        let mut replies = peer.exchange(ReceiverStream::new(said)).await.unwrap().into_inner();
        let welcome = timeout(PATIENCE, replies.message()).await.unwrap().unwrap().unwrap();
        Impostor {
            channel,
            ticket: welcome.wire_pass,
            cluster_id: welcome.cluster_id,
            _exchange: (frames, replies),
        }
    }
}

/// Calls the three methods with this ticket. Gives what each was refused with.
async fn forward(channel: &Channel, ticket: Option<&[u8]>, principal: &str) -> Vec<Option<Reason>> {
    let caller = Some(Caller {
        principal: principal.into(),
        address: "127.0.0.1".into(),
        protocol: Protocol::Grpc.into(),
        ..Default::default()
    });
    let mut client = ForwardServiceClient::new(channel.clone());
    let action = |method: &str, request: Vec<u8>| {
        with_ticket(
            ForwardedAction {
                caller: caller.clone(),
                method: method.into(),
                request,
                ..Default::default()
            },
            ticket,
        )
    };
    let status = StatusRequest { name: "any".into(), request_id: 0 }.encode_to_vec();
    let call = client.forward(action("/holdfast.v1.LockService/Status", status)).await.err();
    let watch = WatchRequest::default().encode_to_vec();
    let watch = client.forward_stream(action("/holdfast.v1.WatchService/Watch", watch)).await.err();
    let open =
        OpenSessionRequest { session_id: new_session(), request_id: 1, ..Default::default() };
    let open = Operation { kind: Some(operation::Kind::Open(open)) };
    let frame = ClientFrame { operations: vec![open], acked_through: 0 }.encode_to_vec();
    let frame = ForwardedFrame { caller: caller.clone(), frame, ..Default::default() };
    let session =
        client.forward_session(with_ticket(tokio_stream::once(frame), ticket)).await.err();
    let reason =
        |status: Option<Status>| status.map(|status| Failure::from_status(&status).reason());
    [call, watch, session].map(reason).to_vec()
}

fn with_ticket<T>(message: T, ticket: Option<&[u8]>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(ticket) = ticket {
        let ticket = MetadataValue::from_bytes(ticket);
        request.metadata_mut().insert_bin("holdfast-ticket-bin", ticket);
    }
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_member_with_the_ticket_of_an_open_exchange_forwards() {
    const NOT_LEADER: Option<Reason> = Some(Reason::NotLeader);
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader(0).await;
    let (node, other) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.stop(node).await;
    let address = format!("http://{}", cluster.configs[leader].nodes[leader].peer);
    let hello = Hello {
        version: 2,
        cluster: cluster.configs[leader].cluster.clone(),
        from_node: node as u64 + 1,
        to_node: leader as u64 + 1,
        data_dir_id: data_dir_id(&cluster, node),
        ..Default::default()
    };
    let member = Impostor::connect(address.clone(), hello.clone()).await;
    let ticket = &member.ticket[..];
    let served = forward(&member.channel, Some(ticket), "anonymous").await;
    assert_eq!(served, [None; 3], "a member with its ticket");
    let own = format!("node:{}", node + 1);
    assert_eq!(forward(&member.channel, Some(ticket), &own).await, [None; 3], "for itself");

    let others = format!("node:{}", other + 1);
    let refused = forward(&member.channel, Some(ticket), &others).await;
    assert_eq!(refused, [Some(Reason::InvalidFrame); 3], "on behalf of another node");
    for wrong in [None, Some(&b""[..]), Some(&[7; 16][..]), Some(&ticket[..15])] {
        let refused = forward(&member.channel, wrong, "anonymous").await;
        assert_eq!(refused, [NOT_LEADER; 3], "{wrong:?}");
    }

    // It may be a member that this node does not know of yet, so it is let in.
    let stranger = Hello {
        from_node: 9,
        data_dir_id: "0".repeat(32),
        cluster_id: member.cluster_id.clone(),
        ..hello
    };
    let stranger = Impostor::connect(address, stranger).await;
    let refused = forward(&stranger.channel, Some(&stranger.ticket), "anonymous").await;
    assert_eq!(refused, [NOT_LEADER; 3], "a node that is no member");

    let Impostor { channel, ticket, _exchange, .. } = member;
    drop(_exchange);
    eventually("a ticket ends with its exchange", async || {
        let refused = forward(&channel, Some(&ticket), "anonymous").await;
        (refused == [NOT_LEADER; 3]).then_some(())
    })
    .await;
}
