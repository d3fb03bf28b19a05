//! `SaveSnapshot`: the whole state at one moment, as a file in pieces. The leader makes it; any other node
//! passes it on.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_engine::{Query, ReadData, WholeState};
use holdfast_proto::failure::refused;
use holdfast_proto::v1::save_snapshot_chunk::Kind;
use holdfast_proto::v1::{Failure, Reason, SaveSnapshotChunk, SaveSnapshotRequest};
use holdfast_replica::GroupId;
use holdfast_service::{Admitted, Caller, Method, Permit};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::offline::header_of;
use crate::rpc::Rpc;
use crate::rpc::failure::{bug, overloaded, took_too_long};
use crate::rpc::route::Destination;

const PIECE_BYTES: usize = 256 * 1024;
/// From the call to the first chunk: a large table takes a while to write down.
const MAKING_TIMEOUT: Duration = Duration::from_secs(60);
/// A caller takes the next piece within this time, or is cut off.
const READING_TIMEOUT: Duration = Duration::from_secs(30);
const CHUNKS_AHEAD: usize = 4;

pub(in crate::rpc) type Chunks =
    Pin<Box<dyn Stream<Item = Result<SaveSnapshotChunk, Status>> + Send>>;

pub(in crate::rpc) async fn serve(
    rpc: &Rpc,
    caller: Caller,
    request: SaveSnapshotRequest,
) -> Result<Chunks, Failure> {
    const METHOD: Method = Method::SaveSnapshot;
    let permit = rpc.door.begin(METHOD)?;
    if request.group != 0 && request.group != GroupId::FIRST.0 {
        let words = format!("there is no group {}", request.group);
        return Err(refused(Reason::InvalidFrame, words));
    }
    rpc.membership.groups.only_with_one("save a snapshot")?;
    let query = rpc.door.admit(&caller, METHOD, Query::Snapshot)?;
    match rpc.destination(&caller, METHOD, GroupId::FIRST).await? {
        Destination::Here => {
            let only = Arc::clone(&rpc.backups).try_acquire_owned().map_err(|_| overloaded())?;
            let made = timeout(MAKING_TIMEOUT, make(rpc, query)).await;
            let (header, body) = made
                .unwrap_or_else(|_| Err(Failure { may_have_happened: false, ..took_too_long() }))?;
            let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
            tokio::spawn(cut(header, body, sender, (permit, only)));
            Ok(Box::pin(ReceiverStream::new(chunks)))
        }
        Destination::At(leader) => {
            rpc.forwarding.stream((leader, None), &caller, METHOD, &request).await
        }
    }
}

async fn make(rpc: &Rpc, query: Admitted<Query>) -> Result<(Vec<u8>, Bytes), Failure> {
    let ReadData::Snapshot(state) = rpc.door.read(GroupId::FIRST, query).await?.data else {
        return Err(bug("the shard read something else"));
    };
    let WholeState { cluster, logical_time, file } = state;
    let header = header_of(&rpc.membership.cluster, cluster, GroupId::FIRST, logical_time, &file);
    Ok((header.encode(), file.data))
}

/// The header, then the pieces; each made when the transport has room for it. The permits are held until
/// the last one, and a caller that does not read loses them.
async fn cut(
    header: Vec<u8>,
    body: Bytes,
    chunks: mpsc::Sender<Result<SaveSnapshotChunk, Status>>,
    _permits: (Permit, OwnedSemaphorePermit),
) {
    let pieces = (0..body.len())
        .step_by(PIECE_BYTES)
        .map(|start| Kind::Piece(body.slice(start..body.len().min(start + PIECE_BYTES)).to_vec()));
    for kind in std::iter::once(Kind::Header(header)).chain(pieces) {
        let chunk = SaveSnapshotChunk { kind: Some(kind) };
        // A client that gets less than the header announces knows that it is not whole.
        match timeout(READING_TIMEOUT, chunks.send(Ok(chunk))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => return tracing::warn!("a client asked for a snapshot and does not read it"),
        }
    }
}
