//! `ClusterStatus`: what the answering node sees. It needs no quorum, so that it answers when nothing
//! else does.
//!
//! Only the leader knows how far the others are. So a follower asks it first, and answers with its
//! own view if that fails. Digests are for comparing replicas, so whoever asks for them always gets
//! the view of the very node that was asked.

mod change;
mod save;

use std::time::Duration;

use holdfast_proto::v1::{
    Activity, ClusterStatusRequest, ClusterStatusResponse, Failure, GroupStatus, NodeRole,
    NodeStatus, ReplicaProgress, WaitClass,
};
use holdfast_replica::Role;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::Rpc;
use super::failure::{disks_full, dropped_by_driver, took_too_long};
use super::origin::Origin;
use super::places::Kind;
use super::unary::CALL_TIMEOUT;
use crate::driver::{GroupView, Input};
use crate::identity::DataDirId;
use crate::metrics::{Metrics, RELEASED, Tally};

const LEADER_PATIENCE: Duration = Duration::from_secs(1);

pub(super) async fn serve(
    rpc: &Rpc,
    request: Request<ClusterStatusRequest>,
) -> Result<Response<ClusterStatusResponse>, Status> {
    let _place = rpc.admit(Kind::Call)?;
    let origin = Origin::of(request.metadata())?;
    let request = request.into_inner();
    if let Some(response) = leaders_view(rpc, &origin, request).await {
        return Ok(Response::new(response));
    }
    let views = timeout(CALL_TIMEOUT, inspect(rpc, request.with_digests)).await;
    let views = views.unwrap_or_else(|_| Err(took_too_long())).map_err(|failure| {
        // Nothing was to happen.
        Failure { may_have_happened: false, ..failure }
    })?;
    Ok(Response::new(describe(rpc, views)))
}

/// None if this node leads, or no leader answers.
async fn leaders_view(
    rpc: &Rpc,
    origin: &Origin,
    request: ClusterStatusRequest,
) -> Option<ClusterStatusResponse> {
    let leadership = rpc.driver.leadership();
    let leader = leadership.leader.filter(|leader| *leader != rpc.membership.me)?;
    if origin.is_forwarded() || request.with_digests || request.own_view {
        return None;
    }
    let mut leader = rpc.leaders.client_of(leader).ok()?;
    let request = origin.forwarded(rpc.membership.me, request);
    let response = timeout(LEADER_PATIENCE, leader.client.cluster_status(request)).await;
    Some(response.ok()?.ok()?.into_inner())
}

async fn inspect(rpc: &Rpc, with_digests: bool) -> Result<Vec<GroupView>, Failure> {
    let (reply, views) = oneshot::channel();
    rpc.ask(Input::Inspect { with_digests, reply })?;
    views.await.map_err(|_| {
        if rpc.has_full_disk() { disks_full(&[rpc.membership.me]) } else { dropped_by_driver() }
    })
}

fn describe(rpc: &Rpc, views: Vec<GroupView>) -> ClusterStatusResponse {
    let members = rpc.membership.now();
    let nodes = members.members.iter().map(|(id, member)| NodeStatus {
        id: id.0,
        client_address: member.client_address.clone(),
        peer_address: member.peer_address.clone(),
        reachable: rpc.links.reachable(*id),
        role: role(members.role(*id)).into(),
        data_dir_id: member
            .directory
            .map(|directory| DataDirId::from(directory).to_string())
            .unwrap_or_default(),
        becomes_voter: members.role(*id) == Some(Role::Learner) && !member.stays_learner,
        replaces: member.replaces.map_or(0, |replaced| replaced.0),
    });
    ClusterStatusResponse {
        cluster: rpc.membership.cluster.clone(),
        answered_by: rpc.membership.me.0,
        nodes: nodes.collect(),
        groups: views.into_iter().map(|view| group(view, &rpc.metrics)).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn role(role: Option<Role>) -> NodeRole {
    match role {
        Some(Role::Voter) => NodeRole::Voter,
        Some(Role::Learner) => NodeRole::Learner,
        Some(Role::Entering) => NodeRole::Entering,
        Some(Role::Leaving) => NodeRole::Leaving,
        None => NodeRole::Unspecified,
    }
}

fn group(view: GroupView, metrics: &Metrics) -> GroupStatus {
    let replicas = view.matched.iter().map(|(node, matched)| ReplicaProgress {
        node: node.0,
        matched_index: *matched,
        lag: view.last_index.saturating_sub(*matched),
    });
    GroupStatus {
        group: view.group.0,
        leader: view.leader.map_or(0, |leader| leader.0),
        term: view.term,
        commit_index: view.commit_index,
        applied_index: view.applied_index,
        logical_time_ms: view.logical_time.as_ms(),
        locks: view.locks as u64,
        waiters: view.waiters as u64,
        sessions: view.sessions as u64,
        last_token: view.last_token,
        rules_version: u32::from(view.rules.number()),
        table_bytes: view.table_bytes,
        table_bytes_limit: view.table_limits.bytes,
        locks_limit: view.table_limits.locks,
        digest: view.digest.clone().unwrap_or_default(),
        replicas: replicas.collect(),
        activity: Some(activity(metrics)),
    }
}

fn activity(metrics: &Metrics) -> Activity {
    let at_once = metrics.granted_at_once.buckets();
    let after_wait = metrics.granted_after_wait.buckets();
    let ended: Vec<u64> = metrics.holds_ended.iter().map(Tally::get).collect();
    let released = ended.get(RELEASED).copied().unwrap_or(0);
    Activity {
        granted: metrics.grants.get(),
        queued: metrics.queued.get(),
        released,
        lost: ended.iter().sum::<u64>() - released,
        deadlocks: metrics.deadlocks_refused.get(),
        wait_classes: at_once
            .iter()
            .zip(&after_wait)
            .map(|((bound, one), (_, other))| WaitClass {
                // On the wire the last class has the highest finite bound.
                up_to_seconds: bound.min(f64::MAX),
                grants: one + other,
            })
            .collect(),
    }
}
