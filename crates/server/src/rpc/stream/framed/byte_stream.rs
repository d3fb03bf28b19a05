//! What a framed connection is read from and written to. Encryption goes under this trait.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;

use mio::event::Source;
use mio::net::TcpStream;

/// Nothing blocks: an operation that cannot go on fails with `WouldBlock`, and is tried again after any news of the
/// source. A read of fewer bytes than there is room for means that nothing more is there. What was written leaves with
/// `flush`.
pub(super) trait ByteStream: Read + Write + Source + fmt::Debug + Send {
    /// Nothing follows what was written.
    fn end_writing(&mut self) -> io::Result<()>;
}

impl ByteStream for TcpStream {
    fn end_writing(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}
