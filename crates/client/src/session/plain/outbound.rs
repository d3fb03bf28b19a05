//! What goes to the node on a stream without HTTP/2: at once, if the connection takes it.

use std::io;
use std::time::Instant;

use holdfast_proto::plain::{self, EncodedClientFrame};

use super::halves::Writing;
use crate::connection::{KEEPALIVE_INTERVAL, RESPONSE_BYTES_MAX};

/// More than a node takes; it says so.
const REQUEST_BYTES_MAX: usize = RESPONSE_BYTES_MAX;

#[derive(Debug)]
pub(in super::super) struct PlainOutbound {
    socket: Writing,
    /// Pieces that the connection has not taken, or not wholly.
    pieces: Vec<u8>,
    taken: usize,
    /// Some of what the connection took is not sent.
    is_unflushed: bool,
    ping_due: Instant,
    /// It takes nothing any more. What is still to be read says why.
    is_broken: bool,
}

impl PlainOutbound {
    pub(super) fn new(socket: Writing, now: Instant) -> PlainOutbound {
        let ping_due = now + KEEPALIVE_INTERVAL;
        let (taken, is_unflushed, is_broken) = (0, false, false);
        PlainOutbound { socket, pieces: Vec::new(), taken, is_unflushed, ping_due, is_broken }
    }

    /// Nothing waits to be taken.
    pub(in super::super) fn has_room(&self) -> bool {
        self.pieces.is_empty() && !self.is_unflushed && !self.is_broken
    }

    pub(in super::super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(in super::super) fn send(&mut self, frame: &EncodedClientFrame) {
        self.put(plain::FRAME, frame.bytes());
    }

    /// To be called every now and then.
    pub(in super::super) fn ping_if_due(&mut self, now: Instant) {
        if self.ping_due <= now && self.has_room() {
            self.ping_due = now + KEEPALIVE_INTERVAL;
            self.put(plain::PING, &[]);
        }
    }

    fn put(&mut self, kind: u8, message: &[u8]) {
        if !plain::put_bytes(&mut self.pieces, kind, message, REQUEST_BYTES_MAX) {
            self.is_broken = true;
        }
        self.write();
    }

    /// As much as the connection takes.
    fn write(&mut self) {
        while let Some(rest) = self.pieces.get(self.taken..)
            && !rest.is_empty()
        {
            match self.socket.try_write(rest) {
                Ok(taken) if taken > 0 => self.taken += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // What it took before goes out.
                    let _ = self.socket.try_flush();
                    return;
                }
                _ => {
                    self.is_broken = true;
                    return;
                }
            }
        }
        self.taken = 0;
        plain::reuse(&mut self.pieces);
        match self.socket.try_flush() {
            Ok(()) => self.is_unflushed = false,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_unflushed = true,
            Err(_) => self.is_broken = true,
        }
    }

    /// Returns when nothing waits any more, or the node takes nothing more. Nothing is lost if that is not waited for.
    pub(in super::super) async fn room(&mut self) {
        while (!self.pieces.is_empty() || self.is_unflushed) && !self.is_broken {
            match self.socket.writable().await {
                Ok(()) => self.write(),
                Err(_) => self.is_broken = true,
            }
        }
    }

    /// Ends this half, once the rest is taken.
    pub(in super::super) async fn shut(mut self) {
        self.room().await;
        // The node may have gone.
        let _ = self.socket.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdfast_proto::plain::Pieces;
    use holdfast_proto::v1::AcquireRequest;
    use holdfast_tls::Socket;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// More than the buffers of a connection hold.
    const MUCH: usize = 12 * 1024 * 1024;

    async fn connected() -> (PlainOutbound, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (reading, writing) = super::super::halves::split(Socket::Plain(socket));
        // Nothing is read at this end, and its half stays open.
        std::mem::forget(reading);
        let (other, _) = listener.accept().await.unwrap();
        (PlainOutbound::new(writing, Instant::now()), other)
    }

    /// A frame that is at least as large as this.
    fn large(bytes: usize) -> EncodedClientFrame {
        let mut frame = EncodedClientFrame::new(1);
        frame.push_acquire(&AcquireRequest { metadata: vec![7; bytes], ..Default::default() });
        frame
    }

    #[tokio::test]
    async fn bytes_that_find_no_room_are_written_later_and_in_order() {
        let (mut outbound, mut other) = connected().await;
        outbound.send(&EncodedClientFrame::new(5));
        assert!(outbound.has_room());
        let much = large(MUCH);
        outbound.send(&much);
        assert!(!outbound.has_room() && !outbound.is_broken());
        // A task that waits for something else as well gives up waiting for room again and again.
        let nothing_happens = tokio::time::timeout(Duration::from_millis(1), outbound.room()).await;
        assert!(nothing_happens.is_err());
        let reading = tokio::spawn(async move {
            let (mut pieces, mut seen) = (Pieces::new(REQUEST_BYTES_MAX), Vec::new());
            while other.read_buf(pieces.room()).await.unwrap() > 0 {
                while let Some(piece) = pieces.next_piece().unwrap() {
                    seen.push((piece.kind, piece.message));
                }
            }
            seen
        });
        outbound.room().await;
        assert!(outbound.has_room());
        outbound.ping_if_due(Instant::now());
        outbound.ping_if_due(Instant::now() + KEEPALIVE_INTERVAL);
        outbound.shut().await;
        let seen = reading.await.unwrap();
        let kinds: Vec<u8> = seen.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [plain::FRAME, plain::FRAME, plain::PING]);
        assert_eq!(seen[0].1, EncodedClientFrame::new(5).bytes());
        assert_eq!(seen[1].1, much.bytes());
    }

    #[tokio::test]
    async fn a_connection_closed_by_its_peer_has_no_room_and_is_not_waited_for() {
        let (mut outbound, other) = connected().await;
        drop(other);
        while !outbound.is_broken() {
            outbound.send(&EncodedClientFrame::new(5));
            tokio::task::yield_now().await;
        }
        assert!(!outbound.has_room());
        outbound.room().await;
    }
}
