//! A connection on which a session's stream can be opened.

use std::error::Error;

use holdfast_proto::v1::lock_service_client::LockServiceClient;
use holdfast_tls::Socket;
use tokio::time::timeout;
use tonic::transport::Channel;

use super::plain;
use crate::connection::{CONNECT_TIMEOUT, NO_CONNECTION, Transport};

#[derive(Debug)]
pub(super) enum Connection {
    /// The stream has it for itself, without HTTP/2.
    Plain(Socket),
    /// To whatever speaks only gRPC: a node of an older version, or something that stands between.
    Grpc(LockServiceClient<Channel>),
}

pub(super) type Dialled = Result<Connection, Box<dyn Error + Send + Sync>>;

/// Each step has its own time: one that hears the greeting and waits for more is called instead.
pub(super) async fn dial(transport: Transport, address: String) -> Dialled {
    match plain::greet(&transport, &address).await? {
        Some(socket) => Ok(Connection::Plain(socket)),
        None => match timeout(CONNECT_TIMEOUT, transport.connect(&address)).await {
            Ok(connected) => Ok(Connection::Grpc(connected?)),
            Err(_) => Err(NO_CONNECTION.into()),
        },
    }
}
