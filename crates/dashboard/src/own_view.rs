//! `/api/own`: what this node knows by itself. For when no leader can be asked: the other pages have nothing to show then.
//!
//! All of it may be old. The lock table is this node's copy, up to the last entry of the log that it has applied.

use axum::Json;
use holdfast_proto::v1::{GroupStatus, NodeRole, NodeStatus};
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::live::unix_ms;
use crate::source::{RecentEvents, Source};
use crate::{Dashboard, shape};

const LOCKS_MAX: usize = 100;

pub(crate) async fn serve<S: Source>(dashboard: Dashboard<S>) -> Result<Json<Value>, ApiError> {
    // One more tells whether there are more.
    let mut own = dashboard.source.own_view(LOCKS_MAX + 1).await?;
    let is_cut = own.locks.len() > LOCKS_MAX;
    own.locks.truncate(LOCKS_MAX);
    let me = dashboard.source.node();
    let group = own.cluster.groups.first().cloned().unwrap_or_default();
    let sum = |of: fn(&GroupStatus) -> u64| own.cluster.groups.iter().map(of).sum::<u64>();
    let is_reachable = |node: &NodeStatus| node.id == me || node.reachable;
    let voters = || own.cluster.nodes.iter().filter(|node| node.role() != NodeRole::Learner);
    let newest = RecentEvents { max: 1, ..RecentEvents::default() };
    let last_event = dashboard.source.recent(newest).last().map(|event| event.unix_ms);
    Ok(Json(json!({
        "node": me,
        "cluster": own.cluster.cluster,
        "version": own.cluster.version,
        "unix_ms": unix_ms(),
        "leader": group.leader,
        "disk_full": own.cluster.disk_full,
        "leaderless_since_unix_ms": dashboard.live_status.borrow().leaderless_since_unix_ms(),
        "term": group.term,
        "applied_index": group.applied_index,
        "last_event_unix_ms": last_event,
        "voters": voters().count(),
        "voters_reachable": voters().filter(|node| is_reachable(node)).count(),
        "voters_needed": voters().count() / 2 + 1,
        "nodes": own.cluster.nodes.iter().map(|node| json!({
            "id": node.id,
            "address": node.client_address,
            "reachable": is_reachable(node),
            "is_this": node.id == me,
            "votes": node.role() != NodeRole::Learner,
        })).collect::<Vec<_>>(),
        "groups": own.cluster.groups.iter().map(|group| json!({
            "group": group.group,
            "leader": group.leader,
        })).collect::<Vec<_>>(),
        "lock_count": sum(|group| group.locks),
        "waiter_count": sum(|group| group.waiters),
        "session_count": sum(|group| group.sessions),
        "locks": own.locks.iter().map(shape::summary).collect::<Vec<_>>(),
        "locks_are_cut": is_cut,
        "freezes": own.freezes.iter().map(shape::frozen).collect::<Vec<_>>(),
    })))
}
