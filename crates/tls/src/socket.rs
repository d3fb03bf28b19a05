//! A connection on the runtime, with TLS or without.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::server::Acceptor;
use rustls::{ClientConfig, CommonState, ServerConfig};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{Accept, LazyConfigAcceptor, StartHandshake, TlsConnector, TlsStream};

use crate::remote::RemoteCertificate;

/// A node that speaks HTTP/2 says something at once. Others may wait for the client.
const ACCEPTED_WITHIN: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The end that dials. `address` is `host:port`. It sets no deadline.
pub async fn connect(
    config: Arc<ClientConfig>,
    address: &str,
    socket: TcpStream,
) -> io::Result<Socket> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let host = ServerName::try_from(host)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let stream = TlsConnector::from(config).connect(host, socket).await?;
    Ok(Socket::Tls(Box::new(stream.into())))
}

/// The end that was dialled: the whole first message of the other end has come. Nothing was computed for it.
pub struct ReceivedHello(StartHandshake<TcpStream>);

/// Waits for it. It sets no deadline.
pub async fn receive_hello(socket: TcpStream) -> io::Result<ReceivedHello> {
    LazyConfigAcceptor::new(Acceptor::default(), socket).await.map(ReceivedHello)
}

impl ReceivedHello {
    /// The connection below.
    pub fn tcp(&self) -> &TcpStream {
        &self.0.io
    }

    /// Answers it, at once: the exchange of keys and the signature are most of the work of a handshake.
    pub fn answer(self, config: Arc<ServerConfig>) -> AnsweredHello {
        AnsweredHello(self.0.into_stream(config))
    }
}

/// A client was answered, and has yet to finish the handshake.
pub struct AnsweredHello(Accept<TcpStream>);

impl AnsweredHello {
    /// Waits for the client. It sets no deadline.
    pub async fn finish(self) -> io::Result<Socket> {
        let stream = self.0.await?;
        Ok(Socket::Tls(Box::new(stream.into())))
    }
}

impl std::fmt::Debug for AnsweredHello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AnsweredHello")
    }
}

impl std::fmt::Debug for ReceivedHello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReceivedHello")
    }
}

impl Socket {
    /// Fails if the other end refuses our certificate. In TLS 1.3 it says so after the handshake, and a protocol above may
    /// lose the reason. Returns when it has said something else, or nothing for a while. Nothing is read.
    pub async fn until_accepted(&mut self) -> io::Result<()> {
        let Socket::Tls(stream) = self else { return Ok(()) };
        match timeout(ACCEPTED_WITHIN, stream.fill_buf()).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }

    /// The connection below.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(socket) => socket,
            Socket::Tls(stream) => stream.get_ref().0,
        }
    }

    /// What both ends agreed to speak. `None` if there is no TLS.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.state()?.alpn_protocol()
    }

    /// The other end has shown a certificate, and it gives no name of Holdfast. The verifier refuses such a certificate;
    /// should it differ from what reads the name, the connection has to be refused here.
    pub fn has_nameless_certificate(&self) -> bool {
        let has_shown = self.state().is_some_and(|state| state.peer_certificates().is_some());
        has_shown && self.remote_certificate().is_none()
    }

    pub fn remote_certificate(&self) -> Option<RemoteCertificate> {
        RemoteCertificate::of(self.state()?)
    }

    /// The connection below, and the state of TLS.
    pub fn into_parts(self) -> (TcpStream, Option<Box<rustls::Connection>>) {
        match self {
            Socket::Plain(socket) => (socket, None),
            Socket::Tls(stream) => match *stream {
                TlsStream::Client(stream) => {
                    let (socket, tls) = stream.into_inner();
                    (socket, Some(Box::new(tls.into())))
                }
                TlsStream::Server(stream) => {
                    let (socket, tls) = stream.into_inner();
                    (socket, Some(Box::new(tls.into())))
                }
            },
        }
    }

    fn state(&self) -> Option<&CommonState> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(stream) => Some(stream.get_ref().1),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Socket::Tls(stream) => match Pin::new(stream).poll_read(cx, buffer) {
                // A connection that is closed without a word has ended, as it has without TLS. What is said on it tells
                // whether something is missing.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok(()))
                }
                read => read,
            },
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
            Socket::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Plain(socket) => socket.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
