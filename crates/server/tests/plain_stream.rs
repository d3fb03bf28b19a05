//! A session's stream without HTTP/2, spoken byte by byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use holdfast_proto::plain::{self, GREETING, Pieces};
use holdfast_proto::v1::{
    AcquireRequest, ClientFrame, Failure, KeepAliveRequest, LeaderMoved, ListRequest, Notice,
    OpenSessionRequest, Operation, Reason, ReleaseRequest, ServerFrame, StatusRequest,
    acquire_response, answer, notice, operation,
};
use prost::Message;
use support::{Cluster, PATIENCE, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const BYTES_MAX: usize = 16 << 20;

struct Plain {
    socket: TcpStream,
    pieces: Pieces,
    /// The highest number of a request so far, but for those that a test counts itself.
    last_request: u64,
}

#[derive(Debug, PartialEq)]
enum Said {
    Frame(ServerFrame),
    End(Failure),
    Nothing,
}

impl Plain {
    async fn greet(address: &str) -> Plain {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(&GREETING).await.unwrap();
        let mut greeting = [0; GREETING.len()];
        timeout(PATIENCE, socket.read_exact(&mut greeting)).await.unwrap().unwrap();
        assert_eq!(greeting, GREETING);
        Plain { socket, pieces: Pieces::new(BYTES_MAX), last_request: 1_000_000 }
    }

    async fn send(&mut self, kind: u8, message: &impl Message) {
        let mut bytes = Vec::new();
        assert!(plain::put(&mut bytes, kind, message, BYTES_MAX));
        self.socket.write_all(&bytes).await.unwrap();
    }

    async fn ask(&mut self, kind: operation::Kind) -> answer::Result {
        let operations = vec![Operation { kind: Some(kind) }];
        self.send(plain::FRAME, &ClientFrame { operations, acked_through: 0 }).await;
        loop {
            match self.next().await {
                Said::Frame(frame) if frame.answers.is_empty() => {}
                Said::Frame(mut frame) => return frame.answers.remove(0).result.unwrap(),
                said => panic!("not an answer: {said:?}"),
            }
        }
    }

    async fn open(&mut self) {
        self.open_with_linger(0).await;
    }

    async fn open_with_linger(&mut self, linger_ms: u64) {
        let session_id = holdfast_proto::SessionId::random().unwrap().to_secret_text();
        let open = OpenSessionRequest {
            session_id,
            request_id: 1,
            ttl_ms: 60_000,
            linger_ms: Some(linger_ms),
            ..Default::default()
        };
        let answer = self.ask(operation::Kind::Open(open)).await;
        assert!(matches!(answer, answer::Result::Open(_)), "{answer:?}");
    }

    /// Returns the token.
    async fn take(&mut self, name: &str) -> u64 {
        self.take_as(2, name).await
    }

    async fn take_as(&mut self, request_id: u64, name: &str) -> u64 {
        let answer = self.ask(acquire(request_id, name)).await;
        let answer::Result::Acquire(answer) = answer else { panic!("{answer:?}") };
        match answer.outcome {
            Some(acquire_response::Outcome::Granted(grant)) => grant.token,
            outcome => panic!("not granted: {outcome:?}"),
        }
    }

    /// Until the driver hears it itself, and for a while after.
    async fn be_busy(&mut self) {
        const PAIRS: usize = 20;
        for _ in 0..PAIRS {
            self.last_request += 2;
            let name = "own".to_owned();
            let token = self.take_as(self.last_request - 1, &name).await;
            let request_id = self.last_request;
            let release = ReleaseRequest { request_id, name, token, ..Default::default() };
            let answer = self.ask(operation::Kind::Release(release)).await;
            assert!(matches!(answer, answer::Result::Release(_)), "{answer:?}");
        }
    }

    async fn next(&mut self) -> Said {
        loop {
            if let Some(piece) = self.pieces.next_piece().unwrap() {
                return match piece.kind {
                    plain::FRAME => Said::Frame(ServerFrame::decode(piece.message).unwrap()),
                    plain::END => Said::End(Failure::decode(piece.message).unwrap()),
                    kind => panic!("a piece of kind {kind}"),
                };
            }
            let read = self.socket.read_buf(self.pieces.room());
            match timeout(PATIENCE, read).await.expect("nothing came in time") {
                Ok(0) => return Said::Nothing,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn reason_of_end(&mut self) -> Reason {
        match self.next().await {
            Said::End(failure) => {
                assert_eq!(self.next().await, Said::Nothing);
                failure.reason()
            }
            said => panic!("not an end: {said:?}"),
        }
    }
}

fn acquire(request_id: u64, name: &str) -> operation::Kind {
    operation::Kind::Acquire(AcquireRequest { request_id, name: name.into(), ..Default::default() })
}

fn heartbeat(request_id: u64) -> operation::Kind {
    operation::Kind::KeepAlive(KeepAliveRequest { request_id, ..Default::default() })
}

#[tokio::test]
async fn at_any_node_a_session_takes_a_lock_and_is_told_that_somebody_is_there() {
    let cluster = Cluster::start(3).await;
    for node in [cluster.leader(0).await, cluster.a_follower().await] {
        let mut stream = Plain::greet(&cluster.address(node)).await;
        stream.open().await;
        stream.take(&format!("wallet {node}")).await;
        stream.send(plain::PING, &()).await;
        assert_eq!(stream.next().await, Said::Frame(ServerFrame::default()));
    }
}

#[tokio::test]
async fn whoever_is_busy_is_heard_whatever_it_says_in_between() {
    let cluster = Cluster::start(1).await;
    let mut stream = Plain::greet(&cluster.address(0)).await;
    stream.open().await;
    for round in 0..3 {
        stream.be_busy().await;
        stream.send(plain::PING, &()).await;
        assert_eq!(stream.next().await, Said::Frame(ServerFrame::default()));
        let answer = stream.ask(heartbeat(100 + round)).await;
        assert!(matches!(answer, answer::Result::KeepAlive(_)), "{answer:?}");
        let look = StatusRequest { name: "wallet".into(), request_id: 200 + round };
        let answer = stream.ask(operation::Kind::Status(look)).await;
        assert!(matches!(answer, answer::Result::Status(_)), "{answer:?}");
        let nameless = AcquireRequest { request_id: 300 + round, ..Default::default() };
        let answer = stream.ask(operation::Kind::Acquire(nameless)).await;
        let answer::Result::Failure(failure) = answer else { panic!("{answer:?}") };
        assert_eq!(failure.reason(), Reason::InvalidName);
    }
}

#[tokio::test]
async fn a_client_that_goes_frees_its_locks_long_before_its_ttl_ends() {
    let cluster = Cluster::start(1).await;
    for is_busy in [false, true] {
        let mut stream = Plain::greet(&cluster.address(0)).await;
        stream.open().await;
        stream.take("wallet").await;
        if is_busy {
            stream.be_busy().await;
        }
        drop(stream);
        let mut client = cluster.client(0).await;
        eventually("the lock is free", async || {
            let locks = client.list(ListRequest::default()).await.unwrap().into_inner().locks;
            locks.is_empty().then_some(())
        })
        .await;
    }
}

/// More than a node that does not lead has passed on when it notices that nobody takes the answers any more, and less than
/// a connection takes at once: a reset takes back what is still to be sent.
const FRAMES: u64 = 2_500;
const LONG_LINGER_MS: u64 = 60_000;

#[tokio::test]
async fn what_a_client_has_sent_before_it_went_is_carried_out() {
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader(0).await, cluster.a_follower().await);
    // By the stream's task, by the driver, and by both.
    let more = |id| acquire(id, &id.to_string());
    let mixed = |id| if id % 100 < 80 { more(id) } else { heartbeat(id) };
    let kinds: [&dyn Fn(u64) -> operation::Kind; 3] = [&heartbeat, &more, &mixed];
    for (node, kind) in [leader, follower].iter().flat_map(|node| kinds.map(|kind| (*node, kind))) {
        let mut stream = Plain::greet(&cluster.address(node)).await;
        stream.open_with_linger(LONG_LINGER_MS).await;
        let token = stream.take("wallet").await;
        let others = (3..FRAMES).map(kind);
        let release = operation::Kind::Release(ReleaseRequest {
            request_id: FRAMES,
            name: "wallet".into(),
            token,
            ..Default::default()
        });
        let mut bytes = Vec::new();
        for (kind, acked_through) in others.chain([release]).zip(2..) {
            let operations = vec![Operation { kind: Some(kind) }];
            let frame = ClientFrame { operations, acked_through };
            assert!(plain::put(&mut bytes, plain::FRAME, &frame, BYTES_MAX));
        }
        let (mut reading, mut writing) = stream.socket.into_split();
        let mut answers = vec![0; 64 << 10];
        let read = async { while reading.read(&mut answers).await.unwrap() > 0 {} };
        tokio::select! {
            () = read => panic!("the node ended the stream"),
            written = writing.write_all(&bytes) => written.unwrap(),
        }
        let socket = reading.reunite(writing).unwrap();
        socket.set_zero_linger().unwrap();
        drop(socket);
        let mut client = cluster.client(node).await;
        eventually("the lock is free", async || {
            let look = StatusRequest { name: "wallet".into(), ..Default::default() };
            let status = client.status(look).await.unwrap().into_inner();
            (status.holder_count == 0).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn what_no_client_says_ends_the_stream_in_words() {
    let cluster = Cluster::start(1).await;
    let mut stream = Plain::greet(&cluster.address(0)).await;
    stream.send(plain::END, &Failure::default()).await;
    assert_eq!(stream.reason_of_end().await, Reason::InvalidFrame);

    let mut stream = Plain::greet(&cluster.address(0)).await;
    stream.open().await;
    stream.socket.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    assert_eq!(stream.reason_of_end().await, Reason::InvalidFrame);

    let mut stream = Plain::greet(&cluster.address(0)).await;
    stream.open().await;
    stream.be_busy().await;
    stream.socket.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    assert_eq!(stream.reason_of_end().await, Reason::InvalidFrame);
}

#[tokio::test]
async fn a_node_that_stops_says_so() {
    for is_busy in [false, true] {
        let mut cluster = Cluster::start(1).await;
        let mut stream = Plain::greet(&cluster.address(0)).await;
        stream.open().await;
        if is_busy {
            stream.be_busy().await;
        }
        cluster.stop(0).await;
        let moved = notice::Kind::LeaderMoved(LeaderMoved::default());
        let moved =
            ServerFrame { notices: vec![Notice { kind: Some(moved) }], answers: Vec::new() };
        // Whichever of its halves was first.
        match stream.next().await {
            Said::End(failure) => assert_eq!(failure.reason(), Reason::ShuttingDown),
            Said::Frame(frame) => assert_eq!(frame, moved),
            Said::Nothing => panic!("it went without a word"),
        }
    }
}
