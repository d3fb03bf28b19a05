//! The peer port: lets peers in and passes on what they say.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_proto::peer_v1::peer_service_server::{PeerService, PeerServiceServer};
use holdfast_proto::peer_v1::{
    Batch, Hello, InstallSnapshotResponse, PeerFrame, SnapshotChunk, Welcome, peer_frame,
    snapshot_chunk,
};
use holdfast_proto::v1::cluster_service_server::ClusterServiceServer;
use holdfast_proto::v1::lock_service_server::LockServiceServer;
use holdfast_replica::{GroupId, NodeId};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::{Router, TcpIncoming};
use tonic::{Request, Response, Status, Streaming};

use super::handshake::{Handshake, Peer};
use super::links::{self, PeerLinks};
use super::snapshot_in::{Assembly, AssemblyError};
use super::{FRAME_BYTES_MAX, HANDSHAKE_TIMEOUT};
use crate::driver::{DriverHandle, Input};
use crate::rpc::Rpc;
use crate::stopping::Stopping;
use crate::wrong_port::WrongPort;

/// Snapshots are large; this many are received at a time.
const SNAPSHOTS_AT_ONCE_MAX: usize = 2;

/// The service that other nodes call.
#[derive(Clone, Debug)]
pub(crate) struct PeerPort {
    handshake: Arc<Handshake>,
    driver: DriverHandle,
    links: PeerLinks,
    stopping: Stopping,
    snapshot_slots: Arc<Semaphore>,
    /// Lists of messages that were dropped because the driver's inbox was full.
    dropped: Arc<AtomicU64>,
}

impl PeerPort {
    pub(crate) fn new(
        handshake: Arc<Handshake>,
        driver: DriverHandle,
        links: PeerLinks,
        stopping: Stopping,
    ) -> PeerPort {
        PeerPort {
            handshake,
            driver,
            links,
            stopping,
            snapshot_slots: Arc::new(Semaphore::new(SNAPSHOTS_AT_ONCE_MAX)),
            dropped: Arc::default(),
        }
    }

    /// Serves until the node stops.
    pub(crate) async fn serve(self, incoming: TcpIncoming) -> Result<(), tonic::transport::Error> {
        let stopping = self.stopping.clone();
        self.router()
            .serve_with_incoming_shutdown(incoming, async move { stopping.begun().await })
            .await
    }

    fn router(self) -> Router {
        const WINDOW_BYTES: u32 = 16 * 1024 * 1024;
        const STREAMS_PER_CONNECTION_MAX: u32 = 16;
        let words = self.words_for_clients();
        let lost_clients = WrongPort::<LockServiceServer<Rpc>>::new(&words);
        let lost_operators = WrongPort::<ClusterServiceServer<Rpc>>::new(&words);
        let service = PeerServiceServer::new(self).max_decoding_message_size(FRAME_BYTES_MAX);
        Server::builder()
            .initial_connection_window_size(WINDOW_BYTES)
            .initial_stream_window_size(WINDOW_BYTES)
            .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
            .add_service(service)
            .add_service(lost_clients)
            .add_service(lost_operators)
    }

    fn words_for_clients(&self) -> String {
        let membership = &self.handshake.membership;
        format!(
            "this is the peer port of node {}; clients use {}",
            membership.me,
            membership.client_address(Some(membership.me))
        )
    }

    fn admit(&self, hello: Option<Hello>) -> Result<Peer, Status> {
        let hello =
            hello.ok_or_else(|| Status::invalid_argument("the first frame must be a hello"))?;
        self.handshake.check_hello(&hello).map_err(|refusal| {
            let status = Status::from(refusal);
            tracing::warn!(from = hello.from_node, "refused a peer: {}", status.message());
            status
        })
    }

    /// Passes on what a peer says until it hangs up or the node stops. Gives the last word.
    async fn listen(&self, from: NodeId, frames: &mut Streaming<PeerFrame>) -> Option<Status> {
        let mut membership = self.handshake.membership.watch();
        loop {
            if let Some(refusal) = self.handshake.removed(from) {
                return Some(refusal.into());
            }
            let frame = tokio::select! {
                frame = frames.message() => frame,
                _ = membership.changed() => continue,
                () = self.stopping.begun() => {
                    return Some(Status::unavailable("this node is stopping"));
                }
            };
            match frame {
                Ok(Some(PeerFrame { kind: Some(peer_frame::Kind::Batch(batch)) })) => {
                    self.pass_on(from, batch);
                }
                Ok(Some(_)) => {
                    return Some(Status::invalid_argument("after the hello come batches"));
                }
                Ok(None) => return None,
                Err(status) => {
                    tracing::debug!(%from, "a peer's stream broke: {}", status.message());
                    return Some(status);
                }
            }
        }
    }

    fn pass_on(&self, from: NodeId, batch: Batch) {
        let messages = batch.messages.into_iter().map(|m| (GroupId(m.group), m.message)).collect();
        if self.driver.send(Input::PeerMessages(messages)).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!(%from, dropped, "the inbox is full: dropped a peer's messages");
        }
    }

    async fn receive_snapshot(
        &self,
        chunks: &mut Streaming<SnapshotChunk>,
    ) -> Result<(GroupId, Vec<u8>), Status> {
        let Some(snapshot_chunk::Kind::Start(start)) = next_kind(chunks).await? else {
            return Err(Status::invalid_argument("after the hello comes the start"));
        };
        let mut assembly = Assembly::begin(&start)?;
        while let Some(kind) = next_kind(chunks).await? {
            match kind {
                snapshot_chunk::Kind::Piece(piece) => assembly.add(&piece)?,
                _ => return Err(Status::invalid_argument("after the start come pieces")),
            }
        }
        Ok(assembly.finish()?)
    }

    /// A whole snapshot is too dear to be dropped at a full inbox.
    async fn pass_on_snapshot(&self, group: GroupId, message: Vec<u8>) -> Result<(), Status> {
        const ATTEMPTS: usize = 1_000;
        const PAUSE: Duration = Duration::from_millis(5);
        let mut input = Input::PeerMessages(vec![(group, message)]);
        for _ in 0..ATTEMPTS {
            match self.driver.offer(input) {
                Ok(()) => return Ok(()),
                Err(returned) => input = *returned,
            }
            if self.driver.is_gone() {
                return Err(Status::unavailable("this node is stopping"));
            }
            sleep(PAUSE).await;
        }
        Err(Status::resource_exhausted("this node has too much to do to take a snapshot"))
    }
}

#[tonic::async_trait]
impl PeerService for PeerPort {
    type ExchangeStream = ReceiverStream<Result<Welcome, Status>>;

    async fn exchange(
        &self,
        request: Request<Streaming<PeerFrame>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        let mut frames = request.into_inner();
        let hello = match within_handshake(frames.message()).await?.and_then(|frame| frame.kind) {
            Some(peer_frame::Kind::Hello(hello)) => Some(hello),
            _ => None,
        };
        let peer = self.admit(hello)?;
        let from = peer.node;

        let (replies, response) = mpsc::channel(2);
        let port = self.clone();
        tokio::spawn(async move {
            if replies.send(Ok(port.handshake.welcome())).await.is_err() {
                return;
            }
            tracing::info!(%from, "a peer connected");
            port.links.meet(from, &peer.member.peer_address);
            links::introduce(&port.driver, peer).await;
            let last_word = tokio::select! {
                last_word = port.listen(from, &mut frames) => last_word,
                () = replies.closed() => None,
            };
            if let Some(status) = last_word {
                let _ = replies.send(Err(status)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(response)))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<SnapshotChunk>>,
    ) -> Result<Response<InstallSnapshotResponse>, Status> {
        let mut chunks = request.into_inner();
        let hello = match within_handshake(next_kind(&mut chunks)).await? {
            Some(snapshot_chunk::Kind::Hello(hello)) => Some(hello),
            _ => None,
        };
        let from = self.admit(hello)?.node;
        let _slot = self.snapshot_slots.try_acquire().map_err(|_| {
            Status::resource_exhausted("this node is receiving other snapshots; send it later")
        })?;
        let (group, message) = tokio::select! {
            received = self.receive_snapshot(&mut chunks) => received?,
            () = self.stopping.begun() => return Err(Status::unavailable("this node is stopping")),
        };
        tracing::info!(%from, %group, bytes = message.len(), "received a snapshot");
        self.pass_on_snapshot(group, message).await?;
        Ok(Response::new(InstallSnapshotResponse {}))
    }
}

async fn next_kind(
    chunks: &mut Streaming<SnapshotChunk>,
) -> Result<Option<snapshot_chunk::Kind>, Status> {
    match chunks.message().await? {
        Some(SnapshotChunk { kind: None }) => {
            Err(Status::invalid_argument("a chunk of an unknown kind"))
        }
        chunk => Ok(chunk.and_then(|chunk| chunk.kind)),
    }
}

/// A caller that says nothing must not hold a place for long.
async fn within_handshake<T>(first: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    timeout(HANDSHAKE_TIMEOUT, first)
        .await
        .map_err(|_| Status::deadline_exceeded("the first frame, a hello, did not come in time"))?
}

impl From<AssemblyError> for Status {
    fn from(error: AssemblyError) -> Status {
        Status::invalid_argument(error.to_string())
    }
}
