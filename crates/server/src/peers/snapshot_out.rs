//! Sends a snapshot to a peer: a task and a connection of its own, in pieces.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use holdfast_proto::peer_v1::peer_service_client::PeerServiceClient;
use holdfast_proto::peer_v1::{Hello, SnapshotChunk, SnapshotStart, snapshot_chunk};
use holdfast_replica::{GroupId, NodeId};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_stream::Stream;

use super::endpoint;
use super::handshake::Handshake;
use crate::config::Address;
use crate::inbox::{Input, ShardHandle};

const PIECE_BYTES: usize = 256 * 1024;

/// A peer that is alive but takes longer than this for one snapshot is given up, and consensus tries
/// again with a newer one.
const SENDING_TIMEOUT: Duration = Duration::from_secs(10 * 60);

#[derive(Clone, Debug)]
pub(super) struct SnapshotSender {
    handshake: Arc<Handshake>,
    shard: ShardHandle,
    /// The shard calls from a thread outside the runtime.
    runtime: Handle,
}

impl SnapshotSender {
    pub(super) fn new(handshake: Arc<Handshake>, shard: ShardHandle) -> SnapshotSender {
        SnapshotSender { handshake, shard, runtime: Handle::current() }
    }

    pub(super) fn send(&self, to: NodeId, group: GroupId, message: Vec<u8>) {
        let sender = self.clone();
        self.runtime.spawn(async move {
            let bytes = message.len();
            let sent = timeout(SENDING_TIMEOUT, sender.deliver(to, group, message)).await;
            let delivered = match sent {
                Ok(Ok(())) => {
                    tracing::info!(%to, %group, bytes, "sent a snapshot");
                    true
                }
                Ok(Err(why)) => {
                    tracing::warn!(%to, %group, bytes, "could not send a snapshot: {why}");
                    false
                }
                Err(_) => {
                    tracing::warn!(%to, %group, bytes, "gave up sending a snapshot: too slow");
                    false
                }
            };
            sender.report(to, group, delivered).await;
        });
    }

    async fn deliver(&self, to: NodeId, group: GroupId, message: Vec<u8>) -> Result<(), String> {
        let address =
            self.handshake.membership.peer_address(to).ok_or("its address is not known")?;
        let address = Address::new(&address).map_err(|error| error.to_string())?;
        let endpoint = endpoint(&address).map_err(|error| error.to_string())?;
        let connector = self.handshake.transport.connector(to, &address);
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| error.to_string())?;
        let chunks = Chunks::new(self.handshake.hello(to), group, message);
        PeerServiceClient::new(channel)
            .install_snapshot(chunks)
            .await
            .map_err(|status| status.message().to_owned())?;
        Ok(())
    }

    /// The shard pauses messages to the peer until it hears this, so it must not be lost to a full
    /// inbox.
    async fn report(&self, to: NodeId, group: GroupId, delivered: bool) {
        const PAUSE: Duration = Duration::from_millis(5);
        while self.shard.send(Input::SnapshotSent { group, to, delivered }).is_err() {
            if self.shard.is_gone() {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}

/// The hello, the start, then the pieces; each made when the transport has room for it.
#[derive(Debug)]
struct Chunks {
    hello: Option<Hello>,
    start: Option<SnapshotStart>,
    message: Vec<u8>,
    sent: usize,
}

impl Chunks {
    fn new(hello: Hello, group: GroupId, message: Vec<u8>) -> Chunks {
        let start = SnapshotStart { group: group.0, total_bytes: message.len() as u64 };
        Chunks { hello: Some(hello), start: Some(start), message, sent: 0 }
    }

    fn next_kind(&mut self) -> Option<snapshot_chunk::Kind> {
        if let Some(hello) = self.hello.take() {
            return Some(snapshot_chunk::Kind::Hello(hello));
        }
        if let Some(start) = self.start.take() {
            return Some(snapshot_chunk::Kind::Start(start));
        }
        let rest = self.message.get(self.sent..).filter(|rest| !rest.is_empty())?;
        let piece = rest[..rest.len().min(PIECE_BYTES)].to_vec();
        self.sent += piece.len();
        Some(snapshot_chunk::Kind::Piece(piece))
    }
}

impl Stream for Chunks {
    type Item = SnapshotChunk;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<SnapshotChunk>> {
        Poll::Ready(self.next_kind().map(|kind| SnapshotChunk { kind: Some(kind) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_make_up_the_message() {
        for length in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let message: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut chunks = Chunks::new(Hello::default(), GroupId(1), message.clone());
            assert!(matches!(chunks.next_kind(), Some(snapshot_chunk::Kind::Hello(_))));
            let Some(snapshot_chunk::Kind::Start(start)) = chunks.next_kind() else {
                panic!("no start");
            };
            assert_eq!(start.total_bytes, length as u64);
            let mut received = Vec::new();
            while let Some(snapshot_chunk::Kind::Piece(piece)) = chunks.next_kind() {
                assert!(!piece.is_empty());
                received.extend(piece);
            }
            assert_eq!(received, message);
        }
    }
}
