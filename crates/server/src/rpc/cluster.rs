//! `ClusterStatus`: what the answering node sees. It needs no quorum, so that it answers when nothing
//! else does.
//!
//! Only the leader knows how far the others are. So a follower asks it first, and answers with its
//! own view if that fails. Digests are for comparing replicas, so a caller that asks for them always gets
//! the view of the very node that was asked.

mod change;
mod save;

pub(super) use self::change::{serve as change, transfer_leadership};
pub(super) use self::save::serve as save_snapshot;

use std::time::Duration;

use holdfast_proto::name_hash;
use holdfast_proto::v1::{
    Activity, ClusterStatusRequest, ClusterStatusResponse, Failure, GroupMember, GroupStatus,
    NodeRole, NodeStatus, ReplicaProgress, WaitClass,
};
use holdfast_replica::{DirectoryId, GroupId, Role};
use holdfast_service::{Caller, Method};
use tokio::time::timeout;

use super::Rpc;
use super::failure::took_too_long;
use super::reads::changes_nothing;
use super::route::Destination;
use super::unary::CALL_TIMEOUT;
use crate::identity::DataDirId;
use crate::inbox::GroupView;
use crate::metrics::{Metrics, RELEASED, Tally};

const LEADER_PATIENCE: Duration = Duration::from_secs(1);

pub(super) async fn serve(
    rpc: &Rpc,
    caller: Caller,
    request: ClusterStatusRequest,
) -> Result<ClusterStatusResponse, Failure> {
    const METHOD: Method = Method::ClusterStatus;
    let _permit = rpc.door.begin(METHOD)?;
    let with_digests = rpc.door.admit(&caller, METHOD, request.with_digests)?;
    let is_of_this_node = request.with_digests || request.own_view;
    // That of the root group. It knows how far the followers are of the groups that it leads.
    if !is_of_this_node
        && let Destination::At(leader) = rpc.destination(&caller, METHOD, GroupId::FIRST).await?
    {
        let view = rpc.forwarding.call(leader, &caller, METHOD, &request);
        if let Ok(Ok(view)) = timeout(LEADER_PATIENCE, view).await {
            return Ok(view);
        }
    }
    let views = timeout(CALL_TIMEOUT, rpc.door.inspect(with_digests)).await;
    let views = changes_nothing(views.unwrap_or_else(|_| Err(took_too_long())))?;
    Ok(describe(rpc, views))
}

fn describe(rpc: &Rpc, views: Vec<GroupView>) -> ClusterStatusResponse {
    let members = rpc.membership.now();
    // It is a member of another group, and no group has a member before the root group has it.
    let is_leaving = |node| members.is_member(node).then_some(Role::Leaving);
    let is_one = rpc.membership.groups.is_one();
    let nodes = members.members.iter().map(|(id, member)| NodeStatus {
        id: id.0,
        client_address: member.client_address.clone(),
        peer_address: member.peer_address.clone(),
        reachable: rpc.links.reachable(*id),
        role: role(members.role(*id).or(is_leaving(*id))).into(),
        directory_fingerprint: member.directory.map(fingerprint).unwrap_or_default(),
        becomes_voter: members.role(*id) == Some(Role::Learner) && !member.stays_learner,
        replaces: member.replaces.map_or(0, |replaced| replaced.0),
    });
    ClusterStatusResponse {
        cluster: rpc.membership.cluster.clone(),
        answered_by: rpc.membership.me.0,
        nodes: nodes.collect(),
        groups: views.into_iter().map(|view| group(view, is_one, &rpc.metrics)).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        disk_full: rpc.has_full_disk(),
    }
}

/// Peers know each other by the id of the directory, so clients are shown a hash of it.
fn fingerprint(directory: DirectoryId) -> String {
    format!("{:016x}", u64::from_be_bytes(name_hash(&DataDirId::from(directory).to_string())))
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

fn group(view: GroupView, is_one: bool, metrics: &Metrics) -> GroupStatus {
    let replicas = view.matched.iter().map(|(node, matched)| ReplicaProgress {
        node: node.0,
        matched_index: *matched,
        lag: view.last_index.saturating_sub(*matched),
    });
    let members = view.roles.iter().filter(|_| !is_one);
    let members =
        members.map(|(node, has)| GroupMember { node: node.0, role: role(Some(*has)).into() });
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
        members: members.collect(),
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
