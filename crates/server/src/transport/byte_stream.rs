//! What the shard reads and writes: the framed connections of clients, and the wires between nodes. Encryption is below
//! this trait.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;

use holdfast_tls::Socket;
use mio::event::Source;
use mio::net::TcpStream;

use super::tls_stream::TlsStream;

/// Nothing blocks: an operation that cannot go on fails with `WouldBlock`, and is tried again after any news of the
/// source. A read of fewer bytes than there is room for means that nothing more is there. What was written leaves with
/// `flush`.
pub(crate) trait ByteStream: Read + Write + Source + fmt::Debug + Send {
    /// Nothing follows what was written.
    fn end_writing(&mut self) -> io::Result<()>;

    /// The other end is to notice at once, also if the socket is open elsewhere.
    fn end(&mut self) -> io::Result<()>;

    /// The socket once more, to end it elsewhere.
    fn try_clone_socket(&self) -> io::Result<std::net::TcpStream>;
}

impl ByteStream for TcpStream {
    fn end_writing(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn end(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Both)
    }

    fn try_clone_socket(&self) -> io::Result<std::net::TcpStream> {
        Ok(self.as_fd().try_clone_to_owned()?.into())
    }
}

/// The runtime has nothing to do with the socket any more.
pub(crate) fn byte_stream(socket: Socket) -> io::Result<Box<dyn ByteStream>> {
    let (socket, tls) = socket.into_parts();
    let socket = TcpStream::from_std(socket.into_std()?);
    Ok(match tls {
        None => Box::new(socket),
        Some(tls) => Box::new(TlsStream::new(socket, tls)),
    })
}
