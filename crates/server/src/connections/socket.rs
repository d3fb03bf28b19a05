//! The socket of a client that speaks HTTP/2. It ends when its connection is closed here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use holdfast_tls::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use super::{Connection, OpenConnection};

#[derive(Debug)]
pub(crate) struct ClientSocket {
    socket: Socket,
    open: OpenConnection,
}

impl ClientSocket {
    pub(crate) fn new(socket: Socket, open: OpenConnection) -> ClientSocket {
        ClientSocket { socket, open }
    }
}

impl Connected for ClientSocket {
    /// In the extensions of every request.
    type ConnectInfo = Arc<Connection>;

    fn connect_info(&self) -> Arc<Connection> {
        Arc::clone(self.open.connection())
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.open.connection().poll_closing(cx).is_ready() {
            let words = match self.open.connection().is_denied() {
                true => "this node closed the connection: its certificate is over or revoked",
                false => "this node closed the connection: it was idle",
            };
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, words)));
        }
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
