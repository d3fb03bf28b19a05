//! `SaveSnapshot`: the whole state at one moment, as a file in pieces. The leader makes it; any other node
//! passes it on.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::v1::save_snapshot_chunk::Kind;
use holdfast_proto::v1::{Failure, Reason, SaveSnapshotChunk, SaveSnapshotRequest};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::driver::{FIRST_GROUP, Query, ReadData, WholeState};
use crate::offline::header_of;
use crate::rpc::Rpc;
use crate::rpc::authorise::authorise_operator;
use crate::rpc::failure::{bug, overloaded, refused, took_too_long};
use crate::rpc::origin::Origin;
use crate::rpc::route::Route;

const PIECE_BYTES: usize = 256 * 1024;
/// From the call to the first chunk: a large table takes a while to write down.
const MAKING_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) type Chunks = Pin<Box<dyn Stream<Item = Result<SaveSnapshotChunk, Status>> + Send>>;

pub(super) async fn serve(
    rpc: &Rpc,
    request: Request<SaveSnapshotRequest>,
) -> Result<Response<Chunks>, Status> {
    let place = rpc.admit()?;
    let origin = Origin::of(request.metadata())?;
    authorise_operator(&origin.principal)?;
    let request = request.into_inner();
    if request.group != 0 && request.group != FIRST_GROUP.0 {
        let words = format!("there is no group {}", request.group);
        return Err(refused(Reason::InvalidFrame, words).into());
    }
    match rpc.route(&origin).await? {
        Route::Here => {
            let only = Arc::clone(&rpc.backups).try_acquire_owned().map_err(|_| overloaded())?;
            let made = timeout(MAKING_TIMEOUT, make(rpc)).await;
            let (header, body) = made
                .unwrap_or_else(|_| Err(Failure { may_have_happened: false, ..took_too_long() }))?;
            Ok(Response::new(Box::pin(cut(header, body, (place, only)))))
        }
        Route::There(mut leader) => {
            let request = origin.forwarded(rpc.membership.me, request);
            match leader.cluster.save_snapshot(request).await {
                Ok(chunks) => Ok(Response::new(Box::pin(chunks.into_inner()))),
                Err(status) => Err(leader.failure(&status).into()),
            }
        }
    }
}

async fn make(rpc: &Rpc) -> Result<(Vec<u8>, Bytes), Failure> {
    let ReadData::Snapshot(state) = rpc.read(Query::Snapshot).await?.data else {
        return Err(bug("the driver read something else"));
    };
    let WholeState { cluster, logical_time, file } = state;
    let header = header_of(&rpc.membership.cluster, cluster, FIRST_GROUP, logical_time, &file);
    Ok((header.encode(), file.data))
}

/// The header, then the pieces; each made when the transport has room for it. The places are held until the
/// last.
fn cut(
    header: Vec<u8>,
    body: Bytes,
    places: (OwnedSemaphorePermit, OwnedSemaphorePermit),
) -> impl Stream<Item = Result<SaveSnapshotChunk, Status>> + Send {
    let first = Kind::Header(header);
    let starts = (0..body.len()).step_by(PIECE_BYTES);
    let pieces = starts.map(move |start| {
        let _held = &places;
        Kind::Piece(body.slice(start..body.len().min(start + PIECE_BYTES)).to_vec())
    });
    let kinds = std::iter::once(first).chain(pieces);
    tokio_stream::iter(kinds.map(|kind| Ok(SaveSnapshotChunk { kind: Some(kind) })))
}
