//! The server on the client port, with a limit on everything.
//!
//! There is no HTTP/2 keep-alive from the server. A client that is merely cut off keeps its locks for
//! its TTL, so the server has no use for knowing early that it is silent; the kernel's TCP keep-alive
//! gets rid of dead sockets. Idle connections are closed by [`Connections`].

use std::sync::Arc;

use holdfast_proto::peer_v1::peer_service_server::PeerServiceServer;
use holdfast_proto::v1::access_service_server::AccessServiceServer;
use holdfast_proto::v1::cluster_service_server::ClusterServiceServer;
use holdfast_proto::v1::election_service_server::ElectionServiceServer;
use holdfast_proto::v1::lock_service_server::LockServiceServer;
use holdfast_proto::v1::operator_service_server::OperatorServiceServer;
use holdfast_proto::v1::watch_service_server::WatchServiceServer;
use holdfast_service::{Kind, Method};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::pb::health_server::{Health, HealthServer};

use super::Rpc;
use super::grpc::CallerLayer;
use super::message_sizes::{CALL_BYTES_MAX, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};
use super::protocol_detection::accept_connections;
use super::stream::WatchBody;
use super::typed_status::TypedStatusLayer;
use crate::connections::{Connections, GrpcGateLayer, Paths, Shape};
use crate::peers::PeerPort;
use crate::transport::Transport;
use crate::wrong_port::WrongPort;

/// Calls and streams.
const STREAMS_PER_CONNECTION_MAX: u32 = 1_024;
/// That the service has yet to take.
const NEW_CONNECTIONS_MAX: usize = 1_024;
/// What a client may send before it is read.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// What the calls at a path look like.
fn shape_of(path: &str) -> Shape {
    match path {
        "/holdfast.v1.LockService/Session" => Shape::Session { bytes_max: REQUEST_BYTES_MAX },
        path if path.starts_with("/grpc.reflection.") => {
            Shape::Messages { bytes_max: CALL_BYTES_MAX }
        }
        _ => Shape::Message { bytes_max: CALL_BYTES_MAX },
    }
}

fn is_read(path: &str) -> bool {
    let method = Method::ALL.iter().find(|method| method.path() == Some(path));
    method.is_some_and(|method| matches!(method.row().kind, Kind::Read | Kind::ClusterStatus))
}

/// Why the server on a port ended before the node did.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
    #[error("the reflection service cannot be built: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves until the node stops.
pub(crate) async fn serve(
    rpc: Rpc,
    clients: Arc<Connections>,
    health: HealthServer<impl Health>,
    incoming: TcpIncoming,
    transport: Transport,
) -> Result<(), ServeError> {
    let stopping = rpc.stopping.clone();
    let me = rpc.membership.me;
    let lost_peers = WrongPort::<PeerServiceServer<PeerPort>>::new(&format!(
        "this is the client port of node {me}; peers use {}",
        rpc.membership.listening().peer_address
    ));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(holdfast_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let cluster_service = ClusterServiceServer::new(rpc.clone())
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX);
    let operator_service = OperatorServiceServer::new(rpc.clone())
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX);
    let watch_service =
        WatchServiceServer::new(rpc.clone()).max_encoding_message_size(RESPONSE_BYTES_MAX);
    let election_service = ElectionServiceServer::new(rpc.clone())
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX);
    let access_service = AccessServiceServer::new(rpc.clone())
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX);
    let (framed_sessions, callers) = (rpc.clone(), CallerLayer::new(rpc.clone()));
    let lock_service = LockServiceServer::new(rpc)
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX);
    let (others, other_connections) = mpsc::channel(NEW_CONNECTIONS_MAX);
    let accepting = accept_connections(framed_sessions, clients, incoming, transport, others);
    let serving = Server::builder()
        .layer(GrpcGateLayer::new(Paths { shape_of, is_read }))
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .layer(TypedStatusLayer)
        .layer(callers)
        .add_service(WatchBody::new(lock_service))
        .add_service(cluster_service)
        .add_service(operator_service)
        .add_service(watch_service)
        .add_service(election_service)
        .add_service(access_service)
        .add_service(health)
        .add_service(reflection)
        .add_service(lost_peers)
        .serve_with_incoming_shutdown(ReceiverStream::new(other_connections), async move {
            stopping.begun().await;
        });
    let accepting = async {
        accepting.await;
        Ok(())
    };
    tokio::try_join!(serving, accepting)?;
    Ok(())
}
