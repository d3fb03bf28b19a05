//! Dials another node, for its calls and for the wire.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use holdfast_replica::NodeId;
use holdfast_tls::{ALPN_GRPC, Socket};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use super::Transport;
use crate::config::Address;

/// For the calls to one node.
#[derive(Clone, Debug)]
pub(crate) struct PeerConnector {
    transport: Transport,
    node: NodeId,
    address: Address,
}

impl Transport {
    pub(crate) fn connector(&self, node: NodeId, address: &Address) -> PeerConnector {
        PeerConnector { transport: self.clone(), node, address: address.clone() }
    }

    /// With TLS, what answers is that node and no other. It sets no deadline.
    pub(crate) async fn dial_peer(
        &self,
        node: NodeId,
        address: &Address,
        protocol: &[u8],
    ) -> io::Result<Socket> {
        let socket = TcpStream::connect(address.as_str()).await?;
        socket.set_nodelay(true)?;
        let Some(side) = self.0.peers.as_ref().map(|side| Arc::clone(&side.borrow())) else {
            return Ok(Socket::Plain(socket));
        };
        let config = side.dialling(node, protocol).map_err(io::Error::other)?;
        holdfast_tls::connect(config, address.as_str(), socket).await
    }
}

impl Service<Uri> for PeerConnector {
    type Response = TokioIo<Socket>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Socket>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let PeerConnector { transport, node, address } = self.clone();
        Box::pin(async move {
            let mut socket = transport.dial_peer(node, &address, ALPN_GRPC).await?;
            socket.until_accepted().await?;
            Ok(TokioIo::new(socket))
        })
    }
}
