//! What the shard reads and writes: the framed connections of clients, and the wires between nodes. Encryption is below
//! this trait.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;

use mio::event::Source;
use mio::net::TcpStream;

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
