//! A connection to the peer port, and what its other end has shown.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use holdfast_replica::NodeId;
use holdfast_tls::{RemoteCertificate, Socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use super::connection_limits::CountedConnection;
use crate::transport::Transport;

/// What the other end of a connection has shown to prove which node it is. In the extensions of every request.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// Nothing, and this port asks for nothing.
    Nothing,
    Certificate(RemoteCertificate),
}

impl Shown {
    /// Whether it can be this node.
    pub(crate) fn may_be(&self, node: NodeId) -> bool {
        match self {
            Shown::Nothing => true,
            Shown::Certificate(certificate) => certificate.node() == Some(node.0),
        }
    }

    pub(super) fn certificate(&self) -> Option<RemoteCertificate> {
        match self {
            Shown::Nothing => None,
            Shown::Certificate(certificate) => Some(certificate.clone()),
        }
    }
}

/// A connection that ends when the certificate at its other end no longer counts. All calls on it end with it.
pub(super) struct PeerSocket {
    socket: Socket,
    shown: Shown,
    /// None once it is refused.
    until_refused: Option<UntilRefused>,
    _counted: CountedConnection,
}

type UntilRefused = Pin<Box<dyn Future<Output = String> + Send>>;

impl PeerSocket {
    pub(super) fn new(
        transport: &Transport,
        socket: Socket,
        shown: Shown,
        counted: CountedConnection,
    ) -> PeerSocket {
        let (transport, certificate) = (transport.clone(), shown.certificate());
        let until_refused = async move { transport.until_refused(certificate).await };
        PeerSocket {
            socket,
            shown,
            until_refused: Some(Box::pin(until_refused)),
            _counted: counted,
        }
    }
}

impl Connected for PeerSocket {
    type ConnectInfo = Shown;

    fn connect_info(&self) -> Shown {
        self.shown.clone()
    }
}

impl AsyncRead for PeerSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let refused = self.until_refused.as_mut().map(|refused| refused.as_mut().poll(cx));
        match refused {
            Some(Poll::Pending) => {}
            Some(Poll::Ready(why)) => {
                tracing::warn!(shown = ?self.shown, "closed the connection of a peer: {why}");
                self.until_refused = None;
                return Poll::Ready(Err(refused_error()));
            }
            None => return Poll::Ready(Err(refused_error())),
        }
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for PeerSocket {
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

fn refused_error() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "its certificate is over or revoked")
}
