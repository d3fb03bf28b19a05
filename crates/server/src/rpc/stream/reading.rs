//! The half of a plain connection that is read, as long as the stream's task reads it.

use std::io::{self, Read};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};

use super::watched::watch;

/// However much there would be room for: it is filled with zeros first.
const READ_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Reading(AsyncFd<TcpStream>);

impl Reading {
    /// Of a socket that does not block.
    pub(super) fn new(socket: TcpStream) -> io::Result<Reading> {
        watch(socket, Interest::READABLE).map(Reading)
    }

    /// The runtime watches it no longer.
    pub(super) fn into_socket(self) -> TcpStream {
        self.0.into_inner()
    }
}

impl AsyncRead for Reading {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let room = into.initialize_unfilled_to(into.remaining().min(READ_BYTES_MAX));
            match ready.try_io(|socket| socket.get_ref().read(room)) {
                Ok(Ok(bytes)) => {
                    // That was all: of what comes after it the system will tell.
                    if bytes > 0 && bytes < room.len() {
                        ready.clear_ready();
                    }
                    into.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}
