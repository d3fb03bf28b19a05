//! TLS under what the shard reads and writes, after the handshake.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::Connection;

use super::byte_stream::ByteStream;

/// What is encrypted and waits for room in the socket. More is not taken. The limits of the port do not count it, so it is
/// little: two records of TLS.
const UNSENT_BYTES_MAX: usize = 32 * 1024;

pub(super) struct TlsStream {
    socket: TcpStream,
    tls: Box<Connection>,
    /// Nothing more comes from the socket.
    has_ended: bool,
    /// How reading failed, after something that had come before.
    failed: Option<io::Error>,
}

impl TlsStream {
    /// The socket must not block.
    pub(super) fn new(socket: TcpStream, mut tls: Box<Connection>) -> TlsStream {
        tls.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        TlsStream { socket, tls, has_ended: false, failed: None }
    }

    /// Tells whether the socket may have more.
    fn read_socket(&mut self) -> io::Result<bool> {
        let mut counted = Counted { socket: &mut self.socket, has_more: true };
        let read = self.tls.read_tls(&mut counted);
        let has_more = counted.has_more;
        match read {
            Ok(0) => self.has_ended = true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        if let Err(error) = self.tls.process_new_packets() {
            // The other end is told what it did wrong, if the socket has room.
            let _ = self.send();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        if self.tls.wants_write() {
            match self.send() {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(has_more && !self.has_ended)
    }

    /// What is decrypted already.
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match self.tls.reader().read(into) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            // The connection ended without a word, as it can without TLS.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(Some(0)),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Knows whether a read took all that there was.
struct Counted<'a> {
    socket: &'a mut TcpStream,
    has_more: bool,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.socket.read(into)?;
        self.has_more = bytes == into.len();
        Ok(bytes)
    }
}

impl Read for TlsStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (mut taken, mut has_more) = (0, !self.has_ended && self.failed.is_none());
        loop {
            let Some(room) = into.get_mut(taken..).filter(|room| !room.is_empty()) else {
                return Ok(taken);
            };
            match self.take(room)? {
                // The end is told alone.
                Some(0) => return Ok(taken),
                Some(bytes) => taken += bytes,
                None if has_more => match self.read_socket() {
                    Ok(more) => has_more = more,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // What came before it counts.
                    Err(error) => {
                        self.failed = Some(error);
                        has_more = false;
                    }
                },
                None if taken > 0 => return Ok(taken),
                None => {
                    return Err(self.failed.take().unwrap_or(ErrorKind::WouldBlock.into()));
                }
            }
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.tls.writer().write(bytes)? {
                0 if !bytes.is_empty() => self.send()?,
                taken => return Ok(taken),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

impl Source for TlsStream {
    fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        self.socket.register(registry, token, interests)
    }

    fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        self.socket.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.socket.deregister(registry)
    }
}

impl ByteStream for TlsStream {
    fn end_writing(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        // If the socket has no room for it, its end says the same.
        let _ = self.send();
        self.socket.end_writing()
    }

    fn end(&mut self) -> io::Result<()> {
        self.socket.end()
    }

    fn try_clone_socket(&self) -> io::Result<std::net::TcpStream> {
        self.socket.try_clone_socket()
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream as ClientSocket};
    use std::thread;

    use rustls::{ClientConnection, ServerConnection, StreamOwned};

    use super::*;
    use crate::transport::tests::test_configs;

    /// More than all buffers of a connection hold.
    const MUCH: usize = 16 * 1024 * 1024;

    type Client = StreamOwned<ClientConnection, ClientSocket>;

    fn connected() -> (TlsStream, Client) {
        let (server, client) = test_configs();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = ClientSocket::connect(listener.local_addr().unwrap()).unwrap();
        let (mut here, _) = listener.accept().unwrap();
        let host = "localhost".try_into().unwrap();
        let client = ClientConnection::new(client, host).unwrap();
        let shaking = thread::spawn(move || {
            let mut client = StreamOwned::new(client, socket);
            client.conn.complete_io(&mut client.sock).unwrap();
            client
        });
        let mut tls = ServerConnection::new(server).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut here).unwrap();
        }
        here.set_nonblocking(true).unwrap();
        let stream = TlsStream::new(TcpStream::from_std(here), Box::new(tls.into()));
        (stream, shaking.join().unwrap())
    }

    fn would_block<T>(result: &io::Result<T>) -> bool {
        result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|number| (number % 251) as u8).collect()
    }

    #[test]
    fn much_is_read_and_written_without_blocking_and_arrives_in_order() {
        let (mut here, client) = connected();
        let echoing = thread::spawn(move || {
            let mut client = client;
            client.write_all(&pattern(MUCH)).unwrap();
            client.flush().unwrap();
            let mut read = vec![0; MUCH];
            client.read_exact(&mut read).unwrap();
            read
        });
        let (mut read, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
        while read.len() < MUCH {
            match here.read(&mut buffer) {
                Ok(bytes) => read.extend_from_slice(&buffer[..bytes]),
                other => assert!(would_block(&other), "{other:?}"),
            }
        }
        assert!(read == pattern(MUCH), "all of it came, in order");
        let mut rest = &read[..];
        while !rest.is_empty() {
            match here.write(rest) {
                Ok(bytes) => rest = &rest[bytes..],
                other => assert!(would_block(&other), "{other:?}"),
            }
        }
        while would_block(&here.flush()) {}
        assert!(echoing.join().unwrap() == read, "and back");
    }

    #[test]
    fn a_short_read_means_that_the_socket_is_empty() {
        let (mut here, mut client) = connected();
        client.write_all(&pattern(40_000)).unwrap();
        client.flush().unwrap();
        // All of it is on its way on loopback; a full read says that there may be more.
        let (mut taken, mut buffer) = (0, vec![0; 4_096]);
        while taken < 40_000 {
            match here.read(&mut buffer) {
                Ok(bytes) => taken += bytes,
                other => assert!(would_block(&other), "{other:?}"),
            }
        }
        assert!(would_block(&here.read(&mut buffer)));
    }

    #[test]
    fn a_connection_that_ends_without_a_word_has_ended() {
        let (mut here, mut client) = connected();
        client.write_all(b"last").unwrap();
        client.flush().unwrap();
        client.sock.shutdown(Shutdown::Both).unwrap();
        let (mut read, mut buffer) = (Vec::new(), [0; 64]);
        loop {
            match here.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => read.extend_from_slice(&buffer[..bytes]),
                other => assert!(would_block(&other), "{other:?}"),
            }
        }
        assert_eq!(read, b"last");
    }

    #[test]
    fn bytes_that_are_no_tls_end_the_connection_after_what_came_before() {
        let (mut here, mut client) = connected();
        client.write_all(b"good").unwrap();
        client.flush().unwrap();
        client.sock.write_all(&[0x17, 3, 3, 0, 32]).unwrap();
        client.sock.write_all(&[0xab; 32]).unwrap();
        let (mut read, mut buffer) = (Vec::new(), [0; 64]);
        let error = loop {
            match here.read(&mut buffer) {
                Ok(bytes) => read.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => break error,
            }
        };
        assert_eq!((&read[..], error.kind()), (&b"good"[..], ErrorKind::InvalidData));
    }
}
