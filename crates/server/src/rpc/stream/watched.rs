//! The two halves of a plain connection. Each has a descriptor of its own, so that the driver can watch the one that is read while the
//! runtime watches the other, and does not wake up for what comes.

use std::io;
use std::net::TcpStream;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// By the runtime, for this alone. The socket must not block.
#[expect(unsafe_code, reason = "tokio's own sockets are watched for both")]
pub(super) fn watch(socket: TcpStream, interest: Interest) -> io::Result<AsyncFd<TcpStream>> {
    // SAFETY: a `TcpStream` has one descriptor for as long as it lives.
    unsafe { AsyncFd::register_with_interest(socket, interest) }.map_err(io::Error::from)
}
