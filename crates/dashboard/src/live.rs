//! `/api/live`: how the cluster is, once a second. One task asks for all who look.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::response::Response;
use holdfast_proto::v1::{ClusterStatusResponse, GroupStatus, NodeRole, NodeStatus};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval};

use crate::api_error::ApiError;
use crate::groups::{self, GroupRates, is_up, view_of};
use crate::samples::{Sample, Samples};
use crate::source::{NodeView, Source};
use crate::{Dashboard, STREAMS_MAX, shape, stream};

const INTERVAL: Duration = Duration::from_secs(1);

/// The last second, and those before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveStatus {
    /// Null before the first sample.
    now: Value,
    /// What `/api/groups` answers.
    groups: Value,
    samples: Samples,
    leaderless_since_unix_ms: Option<u64>,
}

impl LiveStatus {
    /// None while a leader is known.
    pub(crate) fn leaderless_since_unix_ms(&self) -> Option<u64> {
        self.leaderless_since_unix_ms
    }

    /// Null before the first sample.
    pub(crate) fn groups(&self) -> &Value {
        &self.groups
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

/// For as long as it is polled. While no page is open it asks for less, unless there are several groups: then only all
/// nodes together know what was done.
pub(crate) async fn keep_sampling<S: Source>(
    source: Arc<S>,
    sender: watch::Sender<Arc<LiveStatus>>,
    streams: Arc<Semaphore>,
) {
    let (mut samples, mut group_rates) = (Samples::default(), GroupRates::default());
    let mut leaderless_since_unix_ms = None;
    let mut seconds = interval(INTERVAL);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        let looked_at = streams.available_permits() < STREAMS_MAX;
        let Ok(cluster) = source.cluster().await else { continue };
        let asks_all = looked_at || cluster.groups.len() > 1;
        let views = if asks_all { source.own_views().await } else { Vec::new() };
        let cluster = groups::as_leaders_see(cluster, &views);
        let sample = samples.take(unix_ms(), &cluster, &views);
        let rates = group_rates.take(sample.unix_ms, source.grants());
        let groups = groups::status(sample.unix_ms, &cluster, &views, &rates);
        leaderless_since_unix_ms = match sample.leader {
            0 => leaderless_since_unix_ms.or(Some(sample.unix_ms)),
            _ => None,
        };
        let mut now = overview(&cluster, &views, &sample, samples.leader_changes());
        now["leaderless_since_unix_ms"] = leaderless_since_unix_ms.into();
        let samples = samples.clone();
        sender.send_replace(Arc::new(LiveStatus {
            now,
            groups,
            samples,
            leaderless_since_unix_ms,
        }));
    }
}

fn overview(
    cluster: &ClusterStatusResponse,
    views: &[NodeView],
    sample: &Sample,
    leader_changes: u64,
) -> Value {
    json!({
        "cluster": cluster.cluster,
        "version": cluster.version,
        "answered_by": cluster.answered_by,
        "unix_ms": sample.unix_ms,
        "leader": sample.leader,
        "leader_changes": leader_changes,
        "nodes": cluster.nodes.iter()
            .map(|member| node(cluster, member, view_of(views, member.id)))
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

/// A node says best itself how it is; the leaders know how far behind it is.
fn node(
    cluster: &ClusterStatusResponse,
    member: &NodeStatus,
    view: Option<&Option<ClusterStatusResponse>>,
) -> Value {
    let root = cluster.groups.first();
    let leads = cluster.groups.iter().any(|group| group.leader == member.id);
    let own = view.and_then(Option::as_ref).and_then(|view| view.groups.first());
    let is_answerer = member.id == cluster.answered_by;
    // The most of all groups, if all are known.
    let lags: Option<Vec<u64>> =
        cluster.groups.iter().map(|group| lag(cluster, group, member)).collect();
    json!({
        "id": member.id,
        "address": member.client_address,
        "role": match member.role() {
            _ if leads => "leader",
            NodeRole::Voter | NodeRole::Unspecified => "follower",
            role => shape::role(role),
        },
        "up": is_up(cluster, member, view),
        "term": own.map(|own| own.term).or(root.filter(|_| is_answerer).map(|group| group.term)),
        "applied_index": own.map(|own| own.applied_index)
            .or(root.filter(|_| is_answerer).map(|group| group.applied_index)),
        "lag": lags.and_then(|lags| lags.into_iter().max()),
    })
}

/// How many entries of the group's log the node lacks, if the group's leader tells.
fn lag(cluster: &ClusterStatusResponse, group: &GroupStatus, member: &NodeStatus) -> Option<u64> {
    if group.leader == member.id {
        return Some(0);
    }
    let progress = group.replicas.iter().find(|replica| replica.node == member.id)?;
    // A node that is not heard of may have lost what it had.
    let is_heard = member.reachable || member.id == cluster.answered_by;
    (is_heard && progress.matched_index > 0).then_some(progress.lag)
}

pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
