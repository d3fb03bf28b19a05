//! What is to be written to a framed connection and found no room in the socket yet.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use holdfast_proto::plain;
use prost::Message;

use super::super::super::message_sizes::RESPONSE_BYTES_MAX;
use crate::transport::ByteStream;

/// A client that takes nothing for so long is let go of, though its connection stands.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    unwritten: Vec<u8>,
    /// Of these, so many are written.
    written: usize,
    /// The stream keeps some of what it took.
    is_unflushed: bool,
    /// Since when the client takes nothing.
    blocked_since: Option<Instant>,
    /// How the connection broke, or that the client takes nothing. Nothing is written any more.
    failed: Option<ErrorKind>,
}

impl WriteBuffer {
    /// To be written with the next [`WriteBuffer::flush`]. A message that is larger than may be is left out.
    pub(super) fn put(&mut self, kind: u8, message: &impl Message) {
        plain::put(&mut self.unwritten, kind, message, RESPONSE_BYTES_MAX);
    }

    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        self.unwritten.extend_from_slice(bytes);
    }

    /// Writes after what is not written yet, and keeps what finds no room.
    pub(super) fn write(&mut self, stream: &mut dyn ByteStream, bytes: &[u8]) {
        let taken = if self.unwritten.is_empty() { self.take(stream, bytes) } else { 0 };
        if taken < bytes.len() && self.failed.is_none() {
            self.unwritten.extend_from_slice(bytes.get(taken..).unwrap_or_default());
        }
        self.note_blocked();
    }

    pub(super) fn flush(&mut self, stream: &mut dyn ByteStream) {
        if self.is_empty() {
            return;
        }
        let unwritten = std::mem::take(&mut self.unwritten);
        let taken = self.take(stream, unwritten.get(self.written..).unwrap_or_default());
        self.unwritten = unwritten;
        self.written += taken;
        if self.written == self.unwritten.len() || self.failed.is_some() {
            plain::reuse(&mut self.unwritten);
            self.written = 0;
        } else if taken > 0 {
            self.blocked_since = Some(Instant::now());
            // A client that is always a little behind must not make it grow.
            if self.written > self.unwritten.len() / 2 {
                self.unwritten.drain(..self.written);
                self.written = 0;
            }
        }
        self.note_blocked();
    }

    /// What the stream took and keeps has not reached the client either.
    fn note_blocked(&mut self) {
        if self.is_empty() || self.failed.is_some() {
            self.blocked_since = None;
        } else {
            self.blocked_since.get_or_insert_with(Instant::now);
        }
    }

    /// Bytes that wait for room.
    pub(super) fn len(&self) -> usize {
        self.unwritten.len() - self.written
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0 && !self.is_unflushed
    }

    /// When the client must have taken something.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.blocked_since.map(|since| since + PATIENCE)
    }

    /// The client takes nothing.
    pub(super) fn give_up(&mut self) {
        self.fail(ErrorKind::TimedOut);
    }

    pub(super) fn failed(&self) -> Option<ErrorKind> {
        self.failed
    }

    /// How much the stream takes of it.
    fn take(&mut self, stream: &mut dyn ByteStream, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            if self.failed.is_some() {
                break;
            }
            match stream.write(rest) {
                Ok(0) => self.fail(ErrorKind::WriteZero),
                Ok(more) => taken += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => self.fail(error.kind()),
            }
        }
        self.is_unflushed = match stream.flush().as_ref().map_err(io::Error::kind) {
            Ok(()) => false,
            Err(ErrorKind::WouldBlock | ErrorKind::Interrupted) => true,
            Err(kind) => {
                self.fail(kind);
                false
            }
        };
        taken
    }

    fn fail(&mut self, kind: ErrorKind) {
        self.failed.get_or_insert(kind);
        self.unwritten = Vec::new();
        self.written = 0;
        self.blocked_since = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream as ClientSocket};

    use mio::event::Source;
    use mio::net::TcpStream;
    use mio::{Interest, Registry, Token};

    use super::*;

    /// More than the buffers of a connection hold.
    const MUCH: usize = 32 * 1024 * 1024;

    fn connected() -> (TcpStream, ClientSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = ClientSocket::connect(listener.local_addr().unwrap()).unwrap();
        let here = listener.accept().unwrap().0;
        here.set_nonblocking(true).unwrap();
        (TcpStream::from_std(here), client)
    }

    #[test]
    fn bytes_that_find_no_room_are_written_later_and_in_order() {
        let (mut here, mut client) = connected();
        let mut expected: Vec<u8> = (0..MUCH).map(|number| (number % 251) as u8).collect();
        let mut buffer = WriteBuffer::default();
        buffer.write(&mut here, &expected);
        assert!(!buffer.is_empty() && buffer.deadline().is_some());
        buffer.write(&mut here, b"after it");
        expected.extend_from_slice(b"after it");
        let reading = std::thread::spawn(move || {
            let mut read = Vec::new();
            client.read_to_end(&mut read).unwrap();
            read
        });
        while !buffer.is_empty() {
            buffer.flush(&mut here);
            std::thread::yield_now();
        }
        assert!(buffer.deadline().is_none() && buffer.failed().is_none());
        here.end_writing().unwrap();
        assert!(reading.join().unwrap() == expected, "all of it came, in order");
    }

    #[test]
    fn a_reader_that_is_always_behind_does_not_make_the_buffer_grow() {
        const STEP: usize = 1024 * 1024;
        let (mut here, mut client) = connected();
        let mut buffer = WriteBuffer::default();
        buffer.write(&mut here, &vec![0; MUCH]);
        let (behind, mut read) = (buffer.len(), vec![0; STEP]);
        for _ in 0..3 * MUCH / STEP {
            client.read_exact(&mut read).unwrap();
            buffer.flush(&mut here);
            let missing = behind.saturating_sub(buffer.len());
            buffer.write(&mut here, &vec![0; missing]);
            assert!(buffer.unwritten.len() <= 2 * behind + STEP, "{}", buffer.unwritten.len());
        }
    }

    #[test]
    fn how_a_connection_broke_is_remembered_and_nothing_is_kept_for_it() {
        let (mut here, client) = connected();
        let mut buffer = WriteBuffer::default();
        buffer.write(&mut here, &vec![0; MUCH]);
        assert_eq!(buffer.failed(), None);
        // It closes with much unread, which resets the connection.
        drop(client);
        while buffer.failed().is_none() {
            buffer.flush(&mut here);
        }
        assert_eq!(buffer.failed(), Some(ErrorKind::ConnectionReset));
        buffer.write(&mut here, b"more");
        assert!(buffer.is_empty());
    }

    /// Takes everything and sends nothing, as TLS does up to its limit when the socket has no room.
    #[derive(Debug)]
    struct Keeping(TcpStream);

    impl Read for Keeping {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl io::Write for Keeping {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(ErrorKind::WouldBlock.into())
        }
    }

    impl Source for Keeping {
        fn register(&mut self, to: &Registry, token: Token, want: Interest) -> io::Result<()> {
            self.0.register(to, token, want)
        }

        fn reregister(&mut self, to: &Registry, token: Token, want: Interest) -> io::Result<()> {
            self.0.reregister(to, token, want)
        }

        fn deregister(&mut self, from: &Registry) -> io::Result<()> {
            self.0.deregister(from)
        }
    }

    impl ByteStream for Keeping {
        fn end_writing(&mut self) -> io::Result<()> {
            self.0.end_writing()
        }

        fn end(&mut self) -> io::Result<()> {
            self.0.end()
        }

        fn try_clone_socket(&self) -> io::Result<std::net::TcpStream> {
            self.0.try_clone_socket()
        }
    }

    #[test]
    fn a_client_that_does_not_take_what_the_stream_keeps_has_a_deadline() {
        let (here, _client) = connected();
        let (mut here, mut buffer) = (Keeping(here), WriteBuffer::default());
        buffer.write(&mut here, b"an answer");
        let deadline = buffer.deadline().expect("it has no deadline");
        buffer.flush(&mut here);
        assert_eq!(buffer.deadline(), Some(deadline), "nothing was taken");
        buffer.give_up();
        assert_eq!(buffer.deadline(), None);
    }

    #[test]
    fn a_client_that_reads_nothing_is_given_up() {
        let (mut here, _client) = connected();
        let mut buffer = WriteBuffer::default();
        buffer.write(&mut here, &vec![0; MUCH]);
        buffer.give_up();
        assert_eq!((buffer.failed(), buffer.len()), (Some(ErrorKind::TimedOut), 0));
        assert_eq!(buffer.deadline(), None);
    }
}
