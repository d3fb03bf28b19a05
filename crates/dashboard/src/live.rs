//! `/api/live`: how the cluster is, once a second. One task asks for all who look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::response::Response;
use holdfast_proto::v1::{ClusterStatusResponse, NodeRole, NodeStatus};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval};

use crate::api_error::ApiError;
use crate::samples::{Sample, Samples};
use crate::source::Source;
use crate::{Dashboard, STREAMS_MAX, stream};

const INTERVAL: Duration = Duration::from_secs(1);

/// The last second, and those before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveStatus {
    /// Null before the first sample.
    now: Value,
    samples: Samples,
    leaderless_since_unix_ms: Option<u64>,
}

impl LiveStatus {
    /// None while a leader is known.
    pub(crate) fn leaderless_since_unix_ms(&self) -> Option<u64> {
        self.leaderless_since_unix_ms
    }
}

pub(crate) async fn serve<S: Source>(dashboard: Dashboard<S>) -> Result<Response, ApiError> {
    let (sse, response) = stream::open(&dashboard.streams)?;
    let mut live_status = dashboard.live_status.clone();
    let (node, principal) = (dashboard.source.node(), dashboard.source.principal());
    let acts = dashboard.guard.is_on() || principal.is_some();
    tokio::spawn(async move {
        let first = {
            let live_status = live_status.borrow_and_update();
            json!({
                "node": node,
                "actions": acts,
                "principal": principal,
                "samples": live_status.samples.kept(),
                "now": live_status.now,
            })
        };
        let mut sent = sse.send_event("hello", "", &first).await;
        while sent.is_ok() {
            tokio::select! {
                changed = live_status.changed() => if changed.is_err() { return },
                () = sse.closed() => return,
            }
            let live_status = Arc::clone(&live_status.borrow_and_update());
            let second =
                json!({ "now": live_status.now, "sample": live_status.samples.kept().back() });
            sent = sse.send_event("second", "", &second).await;
        }
    });
    Ok(response)
}

/// For as long as it is polled. While no page is open it asks for less.
pub(crate) async fn keep_sampling<S: Source>(
    source: Arc<S>,
    sender: watch::Sender<Arc<LiveStatus>>,
    streams: Arc<Semaphore>,
) {
    let mut samples = Samples::default();
    let mut leaderless_since_unix_ms = None;
    let mut seconds = interval(INTERVAL);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        let looked_at = streams.available_permits() < STREAMS_MAX;
        let Ok(cluster) = source.cluster().await else { continue };
        let views = if looked_at { source.own_views().await } else { Vec::new() };
        let sample = samples.take(unix_ms(), &cluster);
        leaderless_since_unix_ms = match sample.leader {
            0 => leaderless_since_unix_ms.or(Some(sample.unix_ms)),
            _ => None,
        };
        let mut now = overview(&cluster, &views, &sample, samples.leader_changes());
        now["leaderless_since_unix_ms"] = leaderless_since_unix_ms.into();
        let samples = samples.clone();
        sender.send_replace(Arc::new(LiveStatus { now, samples, leaderless_since_unix_ms }));
    }
}

fn overview(
    cluster: &ClusterStatusResponse,
    views: &[(u64, Option<ClusterStatusResponse>)],
    sample: &Sample,
    leader_changes: u64,
) -> Value {
    let views: BTreeMap<u64, &Option<ClusterStatusResponse>> =
        views.iter().map(|(node, view)| (*node, view)).collect();
    json!({
        "cluster": cluster.cluster,
        "version": cluster.version,
        "answered_by": cluster.answered_by,
        "unix_ms": sample.unix_ms,
        "leader": sample.leader,
        "leader_changes": leader_changes,
        "nodes": cluster.nodes.iter()
            .map(|member| node(cluster, member, views.get(&member.id).copied()))
            .collect::<Vec<_>>(),
        "groups": cluster.groups.iter().map(|group| json!({
            "group": group.group,
            "leader": group.leader,
            "term": group.term,
            "commit_index": group.commit_index,
            "applied_index": group.applied_index,
            "locks": group.locks,
            "waiters": group.waiters,
            "sessions": group.sessions,
        })).collect::<Vec<_>>(),
    })
}

/// A node says best itself how it is; the leader knows how far behind it is.
fn node(
    cluster: &ClusterStatusResponse,
    member: &NodeStatus,
    view: Option<&Option<ClusterStatusResponse>>,
) -> Value {
    let group = cluster.groups.first();
    let leads = group.is_some_and(|group| group.leader == member.id);
    let own = view.and_then(Option::as_ref).and_then(|view| view.groups.first());
    let progress =
        group.and_then(|group| group.replicas.iter().find(|replica| replica.node == member.id));
    let is_answerer = member.id == cluster.answered_by;
    json!({
        "id": member.id,
        "address": member.client_address,
        "role": match member.role() {
            _ if leads => "leader",
            NodeRole::Learner => "learner",
            NodeRole::Entering => "entering",
            NodeRole::Leaving => "leaving",
            _ => "follower",
        },
        // Not asked: believe the one that was.
        "up": view.map_or(is_answerer || member.reachable, Option::is_some),
        "term": own.map(|own| own.term).or(group.filter(|_| is_answerer).map(|group| group.term)),
        "applied_index": own.map(|own| own.applied_index)
            .or(group.filter(|_| is_answerer).map(|group| group.applied_index)),
        // Who is not heard of may have lost what it had.
        "lag": match progress.filter(|progress| member.reachable && progress.matched_index > 0) {
            _ if leads => Some(0),
            progress => progress.map(|progress| progress.lag),
        },
    })
}

pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
