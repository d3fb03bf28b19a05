//! A connection to the peer port, and what its other end has shown.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use holdfast_replica::NodeId;
use holdfast_tls::{RemoteCertificate, Socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// What the other end of a connection has shown to prove which node it is. In the extensions of every request.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// Nothing, and this port asks for nothing.
    Nothing,
    /// It speaks plaintext, and this port TLS.
    Plaintext,
    Certificate(RemoteCertificate),
}

impl Shown {
    /// Whether it can be this node.
    pub(crate) fn may_be(&self, node: NodeId) -> bool {
        match self {
            Shown::Nothing => true,
            Shown::Plaintext => false,
            Shown::Certificate(certificate) => certificate.node() == Some(node.0),
        }
    }

    pub(super) fn certificate(&self) -> Option<RemoteCertificate> {
        match self {
            Shown::Nothing | Shown::Plaintext => None,
            Shown::Certificate(certificate) => Some(certificate.clone()),
        }
    }
}

#[derive(Debug)]
pub(super) struct PeerSocket {
    pub(super) socket: Socket,
    pub(super) shown: Shown,
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
