//! `/api/groups`: each Raft group, and which of them each node leads.
//!
//! It is put together once a second, from what the nodes say then, for all who ask. So a request costs the node nothing
//! but the answer, which has at most 64 groups.

use std::collections::{BTreeMap, VecDeque};

use axum::Json;
use axum::http::StatusCode;
use holdfast_proto::v1::{ClusterStatusResponse, GroupStatus, NodeRole, NodeStatus};
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::samples::rate;
use crate::source::{NodeView, Source};
use crate::{Dashboard, shape};

/// Rates are those of so long a time: a group that is busy now and then is still seen.
const WINDOW_MS: u64 = 5_000;

pub(crate) async fn serve<S: Source>(dashboard: Dashboard<S>) -> Result<Json<Value>, ApiError> {
    let status = dashboard.live_status.borrow().groups().clone();
    if status.is_null() {
        let words = "the node has just started; ask again in a second";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_known_yet", words));
    }
    Ok(Json(status))
}

/// None: it was not asked. In it, none: it does not answer.
pub(crate) fn view_of(views: &[NodeView], node: u64) -> Option<&Option<ClusterStatusResponse>> {
    views.iter().find(|(of, _)| *of == node).map(|(_, view)| view)
}

pub(crate) fn is_up(
    cluster: &ClusterStatusResponse,
    member: &NodeStatus,
    view: Option<&Option<ClusterStatusResponse>>,
) -> bool {
    // Not asked: believe the one that was.
    view.map_or(member.id == cluster.answered_by || member.reachable, Option::is_some)
}

/// The cluster, with each group as its own leader sees it: the node that answered may be behind in the groups that others
/// lead. A group whose leader does not answer is as the node that answered sees it.
pub(crate) fn as_leaders_see(
    cluster: ClusterStatusResponse,
    views: &[NodeView],
) -> ClusterStatusResponse {
    let of_leader = |group: GroupStatus| {
        let views = views.iter().filter_map(|(node, view)| Some((*node, view.as_ref()?)));
        let own = views.filter_map(|(node, view)| {
            let own = view.groups.iter().find(|own| own.group == group.group)?;
            (own.leader == node && own.term >= group.term).then_some(own)
        });
        // One that was frozen may believe that it still leads.
        own.max_by_key(|own| own.term).cloned().unwrap_or(group)
    };
    if cluster.groups.len() < 2 {
        return cluster;
    }
    let groups = cluster.groups.into_iter().map(of_leader).collect();
    ClusterStatusResponse { groups, ..cluster }
}

/// How many holds began in each group, at the moments of the last seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupRates {
    counted: VecDeque<(u64, BTreeMap<u32, u64>)>,
}

impl GroupRates {
    /// Of each group, per second. A group has none as long as there is nothing to compare with.
    pub(crate) fn take(&mut self, unix_ms: u64, grants: BTreeMap<u32, u64>) -> BTreeMap<u32, f64> {
        let is_old = |at: &u64| unix_ms.saturating_sub(*at) > WINDOW_MS;
        while self.counted.front().is_some_and(|(at, _)| is_old(at)) {
            self.counted.pop_front();
        }
        let rates = self.counted.front().map(|(then_ms, then)| {
            let elapsed_ms = unix_ms.saturating_sub(*then_ms);
            let rate = |(group, now): (&u32, &u64)| {
                let count = now.checked_sub(*then.get(group)?)?;
                (elapsed_ms > 0).then(|| (*group, rate(count, elapsed_ms)))
            };
            grants.iter().filter_map(rate).collect()
        });
        self.counted.push_back((unix_ms, grants));
        rates.unwrap_or_default()
    }
}

/// What the page shows of a cluster with several groups, and of one with a single group, too.
pub(crate) fn status(
    unix_ms: u64,
    cluster: &ClusterStatusResponse,
    views: &[NodeView],
    rates: &BTreeMap<u32, f64>,
) -> Value {
    let up = |node: u64| {
        let member = cluster.nodes.iter().find(|member| member.id == node);
        member.is_some_and(|member| is_up(cluster, member, view_of(views, node)))
    };
    let group = |group: &GroupStatus| {
        json!({
            "group": group.group,
            "leader": group.leader,
            "leader_answers": group.leader != 0 && up(group.leader),
            "term": group.term,
            "commit_index": group.commit_index,
            "applied_index": group.applied_index,
            "locks": group.locks,
            "waiters": group.waiters,
            "sessions": group.sessions,
            "grants_per_second": rates.get(&group.group),
            "other_roles": other_roles(cluster, group).into_iter().map(|(node, role)| json!({
                "node": node,
                "role": role.map_or("none", shape::role),
            })).collect::<Vec<_>>(),
        })
    };
    json!({
        "unix_ms": unix_ms,
        "answered_by": cluster.answered_by,
        "groups": cluster.groups.iter().map(group).collect::<Vec<_>>(),
        "nodes": cluster.nodes.iter().map(|node| json!({
            "id": node.id,
            "address": node.client_address,
            "up": up(node.id),
            "leads": cluster.groups.iter()
                .filter(|group| group.leader == node.id)
                .map(|group| group.group)
                .collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

/// The nodes whose role in the group is not the one that they have in group 1. None: the node is no member of the group.
fn other_roles(
    cluster: &ClusterStatusResponse,
    group: &GroupStatus,
) -> BTreeMap<u64, Option<NodeRole>> {
    // Only the nodes of a cluster with several groups say it.
    if group.members.is_empty() {
        return BTreeMap::new();
    }
    let in_group: BTreeMap<u64, NodeRole> =
        group.members.iter().map(|member| (member.node, member.role())).collect();
    let roles = cluster.nodes.iter().map(|node| (node, in_group.get(&node.id).copied()));
    let other = roles.filter(|(node, role)| *role != Some(node.role()));
    other.map(|(node, role)| (node.id, role)).collect()
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::GroupMember;

    use super::*;

    fn group(group: u32, leader: u64, term: u64, commit_index: u64) -> GroupStatus {
        GroupStatus { group, leader, term, commit_index, ..Default::default() }
    }

    fn seen_by(node: u64, groups: Vec<GroupStatus>) -> ClusterStatusResponse {
        let nodes = (1..=3).map(|id| NodeStatus {
            id,
            reachable: true,
            role: NodeRole::Voter.into(),
            ..Default::default()
        });
        ClusterStatusResponse {
            answered_by: node,
            nodes: nodes.collect(),
            groups,
            ..Default::default()
        }
    }

    #[test]
    fn a_group_is_shown_as_its_own_leader_sees_it() {
        let root = seen_by(1, vec![group(1, 1, 4, 90), group(2, 2, 3, 50), group(3, 3, 2, 8)]);
        let views = [
            (1, Some(root.clone())),
            // It leads group 2. That it once led group 1 is past.
            (2, Some(seen_by(2, vec![group(1, 2, 3, 80), group(2, 2, 3, 55), group(3, 3, 2, 7)]))),
            (3, None),
        ];
        let cluster = as_leaders_see(root, &views);
        let shown: Vec<_> = cluster
            .groups
            .iter()
            .map(|group| (group.group, group.leader, group.term, group.commit_index))
            .collect();
        assert_eq!(shown, [(1, 1, 4, 90), (2, 2, 3, 55), (3, 3, 2, 8)]);

        let status = status(0, &cluster, &views, &BTreeMap::from([(2, 7.5)]));
        let of_each = |key: &str| {
            let groups = status["groups"].as_array().unwrap();
            groups.iter().map(|group| group[key].clone()).collect::<Vec<_>>()
        };
        assert_eq!(of_each("leader_answers"), [true, true, false]);
        assert_eq!(of_each("grants_per_second"), [Value::Null, 7.5.into(), Value::Null]);
        let nodes = status["nodes"].as_array().unwrap().iter();
        assert_eq!(
            nodes.map(|node| &node["leads"]).collect::<Vec<_>>(),
            [&json!([1]), &json!([2]), &json!([3])]
        );
    }

    #[test]
    fn a_leader_that_was_elected_since_the_answer_is_shown() {
        let root = seen_by(1, vec![group(1, 1, 4, 9), group(2, 0, 5, 6)]);
        let views = [(3, Some(seen_by(3, vec![group(1, 1, 4, 9), group(2, 3, 6, 7)])))];
        assert_eq!(as_leaders_see(root, &views).groups[1], group(2, 3, 6, 7));
    }

    #[test]
    fn roles_that_differ_from_those_in_the_first_group_are_told() {
        let member = |node: u64, role: NodeRole| GroupMember { node, role: role.into() };
        let voters = || (1..=3).map(|node| member(node, NodeRole::Voter)).collect();
        let follows = vec![member(1, NodeRole::Voter), member(2, NodeRole::Learner)];
        let cluster = seen_by(
            1,
            vec![
                GroupStatus { members: voters(), ..group(1, 1, 1, 1) },
                GroupStatus { members: follows, ..group(2, 1, 1, 1) },
            ],
        );
        let roles = |of: usize| other_roles(&cluster, &cluster.groups[of]);
        assert_eq!(roles(0), BTreeMap::new());
        assert_eq!(roles(1), BTreeMap::from([(2, Some(NodeRole::Learner)), (3, None)]));
    }

    #[test]
    fn rates_are_those_of_the_last_seconds_and_begin_again_with_the_node() {
        let mut rates = GroupRates::default();
        let mut take = |at: u64, one: u64, two: u64| {
            rates.take(at, BTreeMap::from([(1, one), (2, two)])).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(take(0, 0, 100), []);
        assert_eq!(take(1_000, 0, 150), [(1, 0.0), (2, 50.0)]);
        assert_eq!(take(5_000, 100, 150), [(1, 20.0), (2, 10.0)]);
        assert_eq!(take(6_000, 100, 150), [(1, 20.0), (2, 0.0)]);
        // Less than before.
        assert_eq!(take(7_000, 100, 3), [(1, 0.0)]);
    }
}
