//! A session's stream on a framed connection, spoken byte by byte.

#![allow(clippy::panic, reason = "helpers of tests")]

use holdfast_proto::plain::{self, GREETING, Pieces};
use holdfast_proto::v1::{
    AcquireRequest, ClientFrame, Failure, KeepAliveRequest, OpenSessionRequest, Operation, Reason,
    ReleaseRequest, ServerFrame, acquire_response, answer, operation,
};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

pub(crate) const BYTES_MAX: usize = 16 << 20;

/// A client that speaks byte by byte.
pub(crate) struct FramedClient<S = TcpStream> {
    pub(crate) socket: S,
    pieces: Pieces,
    /// The highest number of a request so far, but for those that a test counts itself.
    last_request: u64,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Received {
    Frame(ServerFrame),
    End(Failure),
    Nothing,
}

impl FramedClient {
    pub(crate) async fn greet(address: &str) -> FramedClient {
        FramedClient::over(TcpStream::connect(address).await.unwrap()).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> FramedClient<S> {
    pub(crate) async fn over(mut socket: S) -> FramedClient<S> {
        socket.write_all(&GREETING).await.unwrap();
        let mut greeting = [0; GREETING.len()];
        timeout(PATIENCE, socket.read_exact(&mut greeting)).await.unwrap().unwrap();
        assert_eq!(greeting, GREETING);
        FramedClient { socket, pieces: Pieces::new(BYTES_MAX), last_request: 1_000_000 }
    }

    pub(crate) async fn send(&mut self, kind: u8, message: &impl Message) {
        let mut bytes = Vec::new();
        assert!(plain::put(&mut bytes, kind, message, BYTES_MAX));
        self.socket.write_all(&bytes).await.unwrap();
    }

    pub(crate) async fn ask(&mut self, kind: operation::Kind) -> answer::Result {
        let operations = vec![Operation { kind: Some(kind) }];
        self.send(plain::FRAME, &ClientFrame { operations, acked_through: 0 }).await;
        loop {
            match self.next().await {
                Received::Frame(frame) if frame.answers.is_empty() => {}
                Received::Frame(mut frame) => return frame.answers.remove(0).result.unwrap(),
                said => panic!("not an answer: {said:?}"),
            }
        }
    }

    pub(crate) async fn open(&mut self) {
        self.open_with_linger(0).await;
    }

    pub(crate) async fn open_with_linger(&mut self, linger_ms: u64) {
        let answer = self.ask(opening(linger_ms)).await;
        assert!(matches!(answer, answer::Result::Open(_)), "{answer:?}");
    }

    /// Returns the token.
    pub(crate) async fn take(&mut self, name: &str) -> u64 {
        self.take_as(2, name).await
    }

    pub(crate) async fn take_as(&mut self, request_id: u64, name: &str) -> u64 {
        let answer = self.ask(acquire(request_id, name)).await;
        let answer::Result::Acquire(answer) = answer else { panic!("{answer:?}") };
        match answer.outcome {
            Some(acquire_response::Outcome::Granted(grant)) => grant.token,
            outcome => panic!("not granted: {outcome:?}"),
        }
    }

    /// Takes and releases a lock again and again.
    pub(crate) async fn be_busy(&mut self) {
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

    pub(crate) async fn next(&mut self) -> Received {
        loop {
            if let Some(piece) = self.pieces.next_piece().unwrap() {
                return match piece.kind {
                    plain::FRAME => Received::Frame(ServerFrame::decode(piece.message).unwrap()),
                    plain::END => Received::End(Failure::decode(piece.message).unwrap()),
                    kind => panic!("a piece of kind {kind}"),
                };
            }
            let read = self.socket.read_buf(self.pieces.room());
            match timeout(PATIENCE, read).await.expect("nothing came in time") {
                Ok(0) => return Received::Nothing,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) async fn reason_of_end(&mut self) -> Reason {
        match self.next().await {
            Received::End(failure) => {
                assert_eq!(self.next().await, Received::Nothing);
                failure.reason()
            }
            said => panic!("not an end: {said:?}"),
        }
    }
}

pub(crate) fn opening(linger_ms: u64) -> operation::Kind {
    operation::Kind::Open(OpenSessionRequest {
        session_id: super::new_session(),
        request_id: 1,
        ttl_ms: 60_000,
        linger_ms: Some(linger_ms),
        ..Default::default()
    })
}

pub(crate) fn acquire(request_id: u64, name: &str) -> operation::Kind {
    operation::Kind::Acquire(AcquireRequest { request_id, name: name.into(), ..Default::default() })
}

pub(crate) fn heartbeat(request_id: u64) -> operation::Kind {
    operation::Kind::KeepAlive(KeepAliveRequest { request_id, ..Default::default() })
}

pub(crate) fn release(request_id: u64, name: &str, token: u64) -> operation::Kind {
    let name = name.into();
    operation::Kind::Release(ReleaseRequest { request_id, name, token, ..Default::default() })
}

/// A frame with these operations.
pub(crate) fn frame(kinds: Vec<operation::Kind>) -> ClientFrame {
    let operations = kinds.into_iter().map(|kind| Operation { kind: Some(kind) }).collect();
    ClientFrame { operations, acked_through: 0 }
}
