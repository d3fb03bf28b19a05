//! The peer port: accepts the connections of other nodes.
//!
//! A peer first makes the gRPC call `Exchange`. Its first message, the hello, says which node it is. This node checks
//! the hello and answers with a welcome. The welcome contains a ticket, a random number. With the ticket the peer opens
//! a *wire*: a second connection, without HTTP/2, that carries only Raft messages. When the exchange ends, this node
//! closes the wire.
//!
//! "The service" below is the gRPC service of this port. It also takes snapshots and forwarded actions.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_core::Limits;
use holdfast_proto::peer_v1::forward_service_server::{ForwardService, ForwardServiceServer};
use holdfast_proto::peer_v1::peer_service_server::{PeerService, PeerServiceServer};
use holdfast_proto::peer_v1::{
    Hello, InstallSnapshotResponse, PeerFrame, SnapshotChunk, Welcome, snapshot_chunk,
};
use holdfast_proto::v1::cluster_service_server::ClusterServiceServer;
use holdfast_proto::v1::lock_service_server::LockServiceServer;
use holdfast_replica::{GroupId, NodeId, SnapshotMessage};
use holdfast_tls::{ALPN_PEER, Socket};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::{Router, TcpIncoming};
use tonic::{Request, Response, Status, Streaming};

use super::connection_limits::ConnectionLimits;
use super::handshake::{Handshake, Peer};
use super::link::identify_peer;
use super::links::PeerLinks;
use super::peer_socket::{PeerSocket, Shown};
use super::snapshot_in::{Assembly, AssemblyError};
use super::unproved_connections::UnprovedConnections;
use super::wire::{ConnectionTicket, ConnectionTickets, is_wire, read_ticket};
use super::{FRAME_BYTES_MAX, HANDSHAKE_TIMEOUT, STREAMS_PER_CONNECTION_MAX, UPWARDS};
use crate::inbox::{Input, ShardHandle};
use crate::stopping::Stopping;
use crate::transport::{Accepted, byte_stream};
use crate::wrong_port::{WrongPort, answer_all};

/// Snapshots are large; this many are received at a time.
const SNAPSHOTS_AT_ONCE_MAX: usize = 2;

/// The limit for new connections: those that have sent nothing yet, and those that the gRPC service has not taken yet.
/// At the limit this node closes the oldest. That seldom hits a node, because a node sends its hello within
/// milliseconds.
const NEW_CONNECTIONS_MAX: usize = 1_024;
/// The same for one IP address. It is high because the nodes on one machine share an address, and each of them may open
/// all its connections at once.
const NEW_PER_ADDRESS_MAX: usize = 224;

/// Connections that the service has. Each node has about 35.
const CONNECTIONS_MAX: usize = 4_096;
const CONNECTIONS_PER_ADDRESS_MAX: usize = 512;

/// Callers whose last refusal is remembered. There are fewer nodes.
const REFUSALS_MAX: usize = 64;

/// The service that other nodes call.
#[derive(Clone, Debug)]
pub(crate) struct PeerPort {
    handshake: Arc<Handshake>,
    shard: ShardHandle,
    links: PeerLinks,
    stopping: Stopping,
    snapshot_slots: Arc<Semaphore>,
    connections: ConnectionLimits,
    tickets: ConnectionTickets,
    refusals: Refusals,
}

/// What each caller was refused for last, so that it is logged once.
#[derive(Clone, Debug, Default)]
struct Refusals(Arc<Mutex<BTreeMap<u64, String>>>);

impl Refusals {
    fn is_new(&self, from: u64, words: &str) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.get(&from).is_some_and(|known| known == words) {
            return false;
        }
        if last.len() >= REFUSALS_MAX {
            last.clear();
        }
        last.insert(from, words.to_owned());
        true
    }

    /// It was let in: the next refusal is news.
    fn forget(&self, from: NodeId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&from.0);
    }
}

impl PeerPort {
    pub(crate) fn new(
        handshake: Arc<Handshake>,
        shard: ShardHandle,
        links: PeerLinks,
        stopping: Stopping,
    ) -> PeerPort {
        PeerPort {
            handshake,
            shard,
            links,
            stopping,
            snapshot_slots: Arc::new(Semaphore::new(SNAPSHOTS_AT_ONCE_MAX)),
            connections: ConnectionLimits::new(CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX),
            tickets: ConnectionTickets::default(),
            refusals: Refusals::default(),
        }
    }

    /// By which forwarded actions show from which node they come.
    pub(crate) fn tickets(&self) -> ConnectionTickets {
        self.tickets.clone()
    }

    /// Serves until the node stops, together with the service that takes forwarded actions.
    pub(crate) async fn serve<F>(
        self,
        forwarded: ForwardServiceServer<F>,
        incoming: TcpIncoming,
    ) -> Result<(), tonic::transport::Error>
    where
        F: ForwardService,
    {
        let stopping = self.stopping.clone();
        let (others, other_connections) = mpsc::channel(NEW_CONNECTIONS_MAX);
        let detecting = self.clone().detect_protocols(incoming, others);
        let serving = self.router(forwarded).serve_with_incoming_shutdown(
            ReceiverStream::new(other_connections),
            async move {
                stopping.begun().await;
            },
        );
        let mut serving = pin!(serving);
        tokio::select! {
            served = &mut serving => served,
            // The node stops, and takes its leave of those who are connected.
            () = detecting => serving.await,
        }
    }

    /// Finds out what each new connection is. Gives wires to the shard, and all other connections to the gRPC service.
    async fn detect_protocols(
        self,
        mut incoming: TcpIncoming,
        others: mpsc::Sender<io::Result<PeerSocket>>,
    ) {
        let unproved = UnprovedConnections::new(NEW_CONNECTIONS_MAX, NEW_PER_ADDRESS_MAX);
        loop {
            let next = tokio::select! {
                next = incoming.next() => next,
                () = self.stopping.begun() => return,
            };
            let socket = match next {
                Some(Ok(socket)) => socket,
                Some(Err(error)) => {
                    if others.send(Err(error)).await.is_err() {
                        return;
                    }
                    continue;
                }
                None => return,
            };
            // One that is gone already has no address.
            let Ok(address) = socket.peer_addr().map(|address| address.ip()) else { continue };
            let mut place = unproved.add(address);
            let (port, others) = (self.clone(), others.clone());
            tokio::spawn(async move {
                let received = tokio::select! {
                    received = timeout(HANDSHAKE_TIMEOUT, port.receive(socket, address)) => received,
                    () = place.taken_away() => {
                        return tracing::debug!(%address, "a connection was closed: newer ones came");
                    }
                };
                match received {
                    Ok(Ok(New::Wire(socket, shown, ticket))) => {
                        port.open_wire(socket, &shown, ticket).await;
                    }
                    // If the service does not take it the node is stopping.
                    Ok(Ok(New::Other(socket))) => drop(others.send(Ok(socket)).await),
                    Ok(Ok(New::Plaintext(socket))) => tokio::select! {
                        () = port.refuse_plaintext(socket) => {}
                        () = place.taken_away() => {}
                    },
                    Ok(Ok(New::Refused)) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "a connection said nothing"),
                    Err(_) => tracing::debug!("a connection said nothing in time"),
                }
                drop(place);
            });
        }
    }

    async fn receive(&self, socket: TcpStream, address: IpAddr) -> io::Result<New> {
        let transport = &self.handshake.transport;
        let mut socket = match transport.accept_peer(socket, address).await? {
            Accepted::Refused => return Ok(New::Refused),
            Accepted::Plaintext(socket) => return Ok(New::Plaintext(socket)),
            Accepted::Ready(socket) => socket,
        };
        let (is_wire, shown) = match (&socket, socket.remote_certificate()) {
            (Socket::Plain(socket), _) => (is_wire(socket).await?, Shown::Nothing),
            (Socket::Tls(_), Some(certificate)) => {
                (socket.protocol() == Some(ALPN_PEER), Shown::Certificate(certificate))
            }
            (Socket::Tls(_), None) => return Ok(New::Refused),
        };
        if is_wire {
            let ticket = read_ticket(&mut socket).await?;
            return Ok(New::Wire(socket, shown, ticket));
        }
        let Some(counted) = self.connections.take(address) else {
            tracing::warn!(%address, "a connection of a peer was closed: there are too many");
            return Ok(New::Refused);
        };
        Ok(New::Other(PeerSocket::new(transport, socket, shown, counted)))
    }

    /// Answers a caller that uses plaintext on a port with TLS. The caller has not proved who it is. So every call gets
    /// the same error, and this node closes the connection after a short time.
    async fn refuse_plaintext(&self, socket: TcpStream) {
        let node = self.handshake.membership.me;
        let words = format!(
            "this is the peer port of node {node}, which speaks TLS; the caller speaks plaintext: give that node a \
             [peer_tls], with a certificate of `holdfast cert node`"
        );
        answer_all(socket, Status::unauthenticated(words)).await;
    }

    /// Gives a wire to the shard if its ticket is valid. When the exchange that issued the ticket ends, this node
    /// closes the wire. An exchange also ends when this node no longer accepts the certificate of the peer.
    async fn open_wire(&self, socket: Socket, shown: &Shown, ticket: ConnectionTicket) {
        let opened = byte_stream(socket);
        let opened = opened.and_then(|stream| Ok((stream.try_clone_socket()?, stream)));
        let (own, stream) = match opened {
            Ok(opened) => opened,
            Err(error) => return tracing::warn!(%error, "a wire cannot be opened"),
        };
        let Some((from, number)) = self.tickets.show(ticket, shown, own) else {
            return tracing::warn!(?shown, "a wire without a ticket of its node was refused");
        };
        self.refusals.forget(from);
        tracing::info!(%from, "a peer connected");
        let mut input = Input::PeerWire { from, number, stream };
        while let Err(returned) = self.shard.offer(input) {
            if self.shard.is_gone() {
                return;
            }
            input = *returned;
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn router<F: ForwardService>(self, forwarded: ForwardServiceServer<F>) -> Router {
        let words = self.explain_to_clients();
        let lost_clients = WrongPort::<LockServiceServer<()>>::new(&words);
        let lost_operators = WrongPort::<ClusterServiceServer<()>>::new(&words);
        let service = PeerServiceServer::new(self).max_decoding_message_size(FRAME_BYTES_MAX);
        Server::builder()
            .initial_connection_window_size(UPWARDS.connection_bytes)
            .initial_stream_window_size(UPWARDS.stream_bytes)
            .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
            .add_service(service)
            .add_service(forwarded)
            .add_service(lost_clients)
            .add_service(lost_operators)
    }

    fn explain_to_clients(&self) -> String {
        let membership = &self.handshake.membership;
        format!(
            "this is the peer port of node {}; clients use {}",
            membership.me,
            membership.client_address(Some(membership.me))
        )
    }

    fn admit(&self, hello: Option<Hello>, shown: &Shown) -> Result<Peer, Status> {
        let hello =
            hello.ok_or_else(|| Status::invalid_argument("the first frame must be a hello"))?;
        self.handshake.check_hello(&hello, shown).map_err(|refusal| {
            let status = Status::from(refusal);
            // It comes again every second until an operator acts.
            if self.refusals.is_new(hello.from_node, status.message()) {
                tracing::warn!(from = hello.from_node, "refused a peer: {}", status.message());
            }
            status
        })
    }

    /// Waits until the peer closes the exchange, the peer is removed from the cluster, or this node stops. Returns the
    /// status that this node sends to the peer last, if any.
    async fn listen(&self, from: NodeId, frames: &mut Streaming<PeerFrame>) -> Option<Status> {
        let mut membership = self.handshake.membership.watch();
        loop {
            if let Some(refusal) = self.handshake.removed(from) {
                return Some(refusal.into());
            }
            let next = tokio::select! {
                next = frames.message() => next,
                _ = membership.changed() => continue,
                () = self.stopping.begun() => {
                    return Some(Status::unavailable("this node is stopping"));
                }
            };
            match next {
                Ok(Some(_)) => {
                    return Some(Status::invalid_argument("one says hello once"));
                }
                Ok(None) => return None,
                Err(status) => {
                    tracing::debug!(%from, "a peer's stream broke: {}", status.message());
                    return Some(status);
                }
            }
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
    async fn pass_on_snapshot(
        &self,
        from: NodeId,
        group: GroupId,
        message: Vec<u8>,
    ) -> Result<(), Status> {
        const ATTEMPTS: usize = 1_000;
        const PAUSE: Duration = Duration::from_millis(5);
        let limits = Limits::default();
        let decoding = spawn_blocking(move || SnapshotMessage::decode(&message, limits));
        let message = match decoding.await {
            Ok(Ok(message)) => Box::new(message),
            Ok(Err(error)) => {
                tracing::warn!(%group, %error, "a snapshot from a peer cannot be used");
                return Err(Status::invalid_argument(error.to_string()));
            }
            Err(error) => return Err(Status::internal(error.to_string())),
        };
        let mut input = Input::PeerSnapshot { from, group, message };
        for _ in 0..ATTEMPTS {
            match self.shard.offer(input) {
                Ok(()) => return Ok(()),
                Err(returned) => input = *returned,
            }
            if self.shard.is_gone() {
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
        let shown = shown(&request)?;
        let mut frames = request.into_inner();
        let first = within_handshake(frames.message()).await?;
        let peer = self.admit(first.and_then(|frame| frame.hello), &shown)?;
        let from = peer.node;
        let held = self.tickets.issue(from).map_err(|error| Status::internal(error.to_string()))?;

        let (replies, response) = mpsc::channel(2);
        let port = self.clone();
        tokio::spawn(async move {
            let welcome = port.handshake.welcome(held.ticket.0.to_vec());
            if replies.send(Ok(welcome)).await.is_err() {
                return;
            }
            port.links.meet(from, &peer.member.peer_address);
            identify_peer(&port.shard, peer).await;
            let termination = tokio::select! {
                termination = port.listen(from, &mut frames) => termination,
                () = replies.closed() => None,
            };
            if !held.was_used() {
                // The usual cause: the peer refused this node. The peer writes the reason to its own log. It also
                // returns the reason when this node dials it.
                tracing::debug!(%from, "a peer hung up before it opened a wire");
            }
            // Its wire ends.
            drop(held);
            if let Some(status) = termination {
                let _ = replies.send(Err(status)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(response)))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<SnapshotChunk>>,
    ) -> Result<Response<InstallSnapshotResponse>, Status> {
        let shown = shown(&request)?;
        let mut chunks = request.into_inner();
        let hello = match within_handshake(next_kind(&mut chunks)).await? {
            Some(snapshot_chunk::Kind::Hello(hello)) => Some(hello),
            _ => None,
        };
        let from = self.admit(hello, &shown)?.node;
        let _slot = self.snapshot_slots.try_acquire().map_err(|_| {
            Status::resource_exhausted("this node is receiving other snapshots; send it later")
        })?;
        let (group, message) = tokio::select! {
            received = self.receive_snapshot(&mut chunks) => received?,
            () = self.stopping.begun() => return Err(Status::unavailable("this node is stopping")),
        };
        tracing::info!(%from, %group, bytes = message.len(), "received a snapshot");
        self.pass_on_snapshot(from, group, message).await?;
        Ok(Response::new(InstallSnapshotResponse {}))
    }
}

/// A new connection.
enum New {
    Wire(Socket, Shown, ConnectionTicket),
    /// It speaks HTTP/2, and nothing of it was read.
    Other(PeerSocket),
    /// It speaks plaintext, and this port TLS.
    Plaintext(TcpStream),
    /// It was told why, if it could be.
    Refused,
}

/// What the other end of a call's connection has shown.
fn shown<T>(request: &Request<T>) -> Result<Shown, Status> {
    let shown = request.extensions().get::<Shown>().cloned();
    shown.ok_or_else(|| Status::internal("a call without a connection"))
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

/// A caller that says nothing must not keep its connection for long.
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
