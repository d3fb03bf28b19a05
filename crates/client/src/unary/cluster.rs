//! Who belongs to the cluster, and who leads it.

use std::time::Duration;

use holdfast_client_core::connect_errors::{ConnectErrors, Contact};
use holdfast_proto::v1;
use holdfast_proto::v1::Failure;
use holdfast_proto::v1::cluster_service_client::ClusterServiceClient;
use tokio::time::timeout;
use tonic::{Code, Response, Status, Streaming};

use super::{ATTEMPT_PATIENCE, CHANGE_PATIENCE, CallError, Unary, unreachable};

/// Nodes give up making a snapshot after a minute.
const SAVE_PATIENCE: Duration = Duration::from_secs(60);
/// A node that sends no piece of a snapshot for this long is gone.
const PIECE_PATIENCE: Duration = Duration::from_secs(10);

/// A snapshot on its way here.
#[derive(Debug)]
pub struct SnapshotPieces(Streaming<v1::SaveSnapshotChunk>);

impl SnapshotPieces {
    /// The next piece; none after the last.
    pub async fn next(&mut self) -> Result<Option<v1::save_snapshot_chunk::Kind>, CallError> {
        let failed = |failure: Failure| {
            let mut troubles = ConnectErrors::default();
            troubles.note("the node that sends the snapshot", Contact::Made, &failure);
            CallError::Unavailable(troubles.to_unavailable(false))
        };
        match timeout(PIECE_PATIENCE, self.0.message()).await {
            Ok(Ok(chunk)) => Ok(chunk.and_then(|chunk| chunk.kind)),
            Ok(Err(status)) => Err(failed(Failure::from_status(&status))),
            Err(_) => Err(failed(unreachable("no piece of it in time", false))),
        }
    }
}

impl Unary {
    /// Answers once the node is a learner.
    pub async fn add_node(
        &self,
        request: v1::AddNodeRequest,
    ) -> Result<v1::AddNodeResponse, CallError> {
        self.call_on(CHANGE_PATIENCE, request, |node, request| async move {
            ClusterServiceClient::new(node).add_node(request).await
        })
        .await
    }

    /// A learner that has caught up becomes a voter.
    pub async fn promote_node(&self, node: u64) -> Result<(), CallError> {
        let request = v1::PromoteNodeRequest { node };
        self.call_on(CHANGE_PATIENCE, request, |node, request| async move {
            ClusterServiceClient::new(node).promote_node(request).await
        })
        .await
        .map(drop)
    }

    /// Answers once the node is no member any more.
    pub async fn remove_node(&self, node: u64) -> Result<(), CallError> {
        let request = v1::RemoveNodeRequest { node };
        self.call_on(CHANGE_PATIENCE, request, |node, request| async move {
            ClusterServiceClient::new(node).remove_node(request).await
        })
        .await
        .map(drop)
    }

    /// Of the [group](Unary::in_group), or of the root group. To the best voter, if none is named. Gives the new leader.
    pub async fn transfer_leadership(&self, to: Option<u64>) -> Result<u64, CallError> {
        let (to, group) = (to.unwrap_or(0), self.group_on_wire());
        let request = v1::TransferLeadershipRequest { to, group };
        let answer = self.call_on(CHANGE_PATIENCE, request, |node, request| async move {
            ClusterServiceClient::new(node).transfer_leadership(request).await
        });
        Ok(answer.await?.leader)
    }

    /// The whole state of the [group](Unary::in_group), as a file in pieces: the header comes first. A cluster with one
    /// group needs no group.
    pub async fn save_snapshot(&self) -> Result<SnapshotPieces, CallError> {
        let request = v1::SaveSnapshotRequest { group: self.group_on_wire() };
        let pieces = self.call_slow(SAVE_PATIENCE, request, |node, request| async move {
            ClusterServiceClient::new(node).save_snapshot(request).await
        });
        Ok(SnapshotPieces(pieces.await?))
    }

    /// What the node at this address itself knows of the cluster; none if it does not say.
    pub async fn own_view(&self, address: &str) -> Option<v1::ClusterStatusResponse> {
        self.ask_own_view(address).await?.ok()
    }

    /// Whether a node answers at this address, and tells this client nothing, because it does not know who asks or who
    /// asks may not know.
    pub async fn is_denied_by(&self, address: &str) -> bool {
        let denied = [Code::Unauthenticated, Code::PermissionDenied];
        let answer = self.ask_own_view(address).await;
        matches!(answer, Some(Err(status)) if denied.contains(&status.code()))
    }

    async fn ask_own_view(
        &self,
        address: &str,
    ) -> Option<Result<v1::ClusterStatusResponse, Status>> {
        let request = v1::ClusterStatusRequest { own_view: true, ..Default::default() };
        let view = async {
            let mut node = self.transport.connect(address).await.ok()?;
            Some(node.cluster_status(request).await.map(Response::into_inner))
        };
        timeout(ATTEMPT_PATIENCE, view).await.ok().flatten()
    }
}
