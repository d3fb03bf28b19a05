//! The two halves of a connection, with TLS or without.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use holdfast_tls::Socket;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

#[derive(Debug)]
pub(super) enum Reading {
    Plain(OwnedReadHalf),
    Tls(tokio::io::ReadHalf<Socket>),
}

#[derive(Debug)]
pub(super) enum Writing {
    Plain(OwnedWriteHalf),
    Tls(tokio::io::WriteHalf<Socket>),
}

pub(super) fn split(socket: Socket) -> (Reading, Writing) {
    match socket {
        Socket::Plain(socket) => {
            let (reading, writing) = socket.into_split();
            (Reading::Plain(reading), Writing::Plain(writing))
        }
        Socket::Tls(_) => {
            let (reading, writing) = tokio::io::split(socket);
            (Reading::Tls(reading), Writing::Tls(writing))
        }
    }
}

impl Reading {
    /// Nothing is lost if it is not waited for to the end.
    pub(super) async fn read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match self {
            Reading::Plain(socket) => socket.read_buf(into).await,
            Reading::Tls(socket) => socket.read_buf(into).await,
        }
    }
}

impl Writing {
    /// Fails with `WouldBlock` if there is no room. What was taken is sent by [`Writing::try_flush`].
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Writing::Plain(socket) => socket.try_write(bytes),
            Writing::Tls(socket) => at_once(|cx| Pin::new(socket).poll_write(cx, bytes)),
        }
    }

    /// Fails with `WouldBlock` if something is left.
    pub(super) fn try_flush(&mut self) -> io::Result<()> {
        match self {
            Writing::Plain(_) => Ok(()),
            Writing::Tls(socket) => at_once(|cx| Pin::new(socket).poll_flush(cx)),
        }
    }

    /// Returns when it is worth trying again.
    pub(super) async fn writable(&mut self) -> io::Result<()> {
        match self {
            Writing::Plain(socket) => socket.writable().await,
            Writing::Tls(socket) => socket.flush().await,
        }
    }

    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Writing::Plain(socket) => socket.shutdown().await,
            Writing::Tls(socket) => socket.shutdown().await,
        }
    }
}

fn at_once<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>) -> io::Result<T> {
    match poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
