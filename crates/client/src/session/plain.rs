//! The client's end of a stream without HTTP/2 (see [`holdfast_proto::plain`]): a task writes, whoever owns the stream reads.
//!
//! A node that says nothing is asked every few seconds whether it is there, because a connection can stand long after its other
//! end has gone.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use holdfast_proto::plain::{self, Pieces};
use holdfast_proto::v1::{Failure, ServerFrame};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::mpsc;
use tokio::time::{Instant as TokioInstant, MissedTickBehavior, interval_at, timeout};
use tonic::Status;

use super::dial::NO_CONNECTION;
use super::frame::Frame;
use crate::connection::{
    CONNECT_TIMEOUT, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, RESPONSE_BYTES_MAX,
};

/// More than a node takes; it says so.
const REQUEST_BYTES_MAX: usize = RESPONSE_BYTES_MAX;
/// A node greets at once. Whoever takes longer may be waiting for HTTP.
const GREETING_TIMEOUT: Duration = Duration::from_millis(400);
/// A node that takes nothing for so long is given up, also by what was left behind for it.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// Time in which nobody looked does not count as silence.
const SILENCE_STEP_MAX: Duration = Duration::from_secs(1);

/// None: somebody is there who does not know how to speak so, or does not say so soon.
pub(super) async fn greet(address: &str) -> io::Result<Option<TcpStream>> {
    let mut socket = connect(address).await?;
    socket.set_nodelay(true)?;
    let mut greeting = [0; plain::GREETING.len()];
    let greeted = async {
        socket.write_all(&plain::GREETING).await?;
        socket.read_exact(&mut greeting).await
    };
    let is_greeted = matches!(timeout(GREETING_TIMEOUT, greeted).await, Ok(Ok(_)));
    Ok((is_greeted && greeting == plain::GREETING).then_some(socket))
}

/// A name can have several addresses, and the first may be one that nobody answers at: each has its share of the time.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let nobody = || io::Error::new(io::ErrorKind::TimedOut, NO_CONNECTION);
    let found = timeout(CONNECT_TIMEOUT, lookup_host(address)).await.map_err(|_| nobody())??;
    let found: Vec<SocketAddr> = found.collect();
    let patience = CONNECT_TIMEOUT / u32::try_from(found.len()).unwrap_or(u32::MAX).max(1);
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in found {
        match timeout(patience, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = nobody(),
        }
    }
    Err(failure)
}

/// What the node sends.
#[derive(Debug)]
pub(super) struct PlainInbound {
    socket: OwnedReadHalf,
    pieces: Pieces,
    silence: Silence,
}

/// Sends these frames until there are no more, which ends this side.
pub(super) fn open(socket: TcpStream, frames: mpsc::Receiver<Frame>) -> PlainInbound {
    let (reading, writing) = socket.into_split();
    tokio::spawn(async move {
        // If nobody reads, the answers end too.
        let _ = write(writing, frames).await;
    });
    PlainInbound {
        socket: reading,
        pieces: Pieces::new(RESPONSE_BYTES_MAX),
        silence: Silence::beginning(Instant::now()),
    }
}

async fn write(mut socket: OwnedWriteHalf, mut frames: mpsc::Receiver<Frame>) -> io::Result<()> {
    let mut written = Vec::new();
    let mut pings = interval_at(TokioInstant::now() + KEEPALIVE_INTERVAL, KEEPALIVE_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            frame = frames.recv() => {
                let Some(frame) = frame else { return socket.shutdown().await };
                put(&mut written, plain::FRAME, frame.bytes())?;
                while let Ok(frame) = frames.try_recv() {
                    put(&mut written, plain::FRAME, frame.bytes())?;
                }
            }
            _ = pings.tick() => put(&mut written, plain::PING, &[])?,
        }
        timeout(WRITE_PATIENCE, socket.write_all(&written)).await??;
        plain::reuse(&mut written);
    }
}

fn put(written: &mut Vec<u8>, kind: u8, message: &[u8]) -> io::Result<()> {
    let has_room = plain::put_bytes(written, kind, message, REQUEST_BYTES_MAX);
    if has_room { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl PlainInbound {
    /// Nothing is lost if it is not waited for to the end.
    pub(super) async fn message(&mut self) -> Result<Option<ServerFrame>, Status> {
        loop {
            let piece = self.pieces.next_piece();
            if let Some(piece) = piece.map_err(|error| Status::internal(error.to_string()))? {
                let broken = |error: prost::DecodeError| Status::internal(error.to_string());
                match piece.kind {
                    // All that it says is that somebody is there.
                    plain::FRAME if piece.message.is_empty() => continue,
                    plain::FRAME => {
                        return ServerFrame::decode(&*piece.message).map(Some).map_err(broken);
                    }
                    plain::END => {
                        let failure = Failure::decode(piece.message).map_err(broken)?;
                        return Err(failure.to_status());
                    }
                    // Of a later version.
                    _ => continue,
                }
            }
            match self.socket.read_buf(self.pieces.room()).await {
                Ok(0) => return Ok(None),
                Ok(_) => self.silence.is_broken(Instant::now()),
                Err(error) => return Err(Status::unavailable(error.to_string())),
            }
        }
    }

    /// Whether nothing has come for too long, though the node was asked. To be called every now and then.
    pub(super) fn has_fallen_silent(&mut self) -> bool {
        self.silence.is_too_long(Instant::now())
    }
}

/// For how long nothing came, as far as somebody looked.
#[derive(Debug)]
struct Silence {
    lasted: Duration,
    looked_at: Instant,
}

impl Silence {
    fn beginning(now: Instant) -> Silence {
        Silence { lasted: Duration::ZERO, looked_at: now }
    }

    fn is_broken(&mut self, now: Instant) {
        *self = Silence::beginning(now);
    }

    fn is_too_long(&mut self, now: Instant) -> bool {
        self.lasted += now.duration_since(self.looked_at).min(SILENCE_STEP_MAX);
        self.looked_at = now;
        self.lasted > KEEPALIVE_INTERVAL + KEEPALIVE_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_given_up_after_some_seconds_in_which_nothing_came_and_not_after_a_pause_of_our_own()
     {
        let mut now = Instant::now();
        let mut silence = Silence::beginning(now);
        let mut after = |seconds: u64| {
            now += Duration::from_secs(seconds);
            now
        };
        for _ in 0..4 {
            assert!(!silence.is_too_long(after(1)));
        }
        silence.is_broken(after(1));
        for _ in 0..4 {
            assert!(!silence.is_too_long(after(1)));
        }
        assert!(silence.is_too_long(after(1)));
        silence.is_broken(after(0));
        // This program stood still, and whatever came meanwhile is yet to be read.
        assert!(!silence.is_too_long(after(3_600)));
    }
}
