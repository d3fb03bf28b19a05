//! What the plots show: the cluster, once a second, for the last minutes.

use std::collections::{BTreeMap, VecDeque};

use holdfast_proto::v1::{Activity, ClusterStatusResponse, GroupStatus, WaitClass};
use serde::Serialize;

use crate::source::NodeView;

/// Five minutes of them.
pub(crate) const SAMPLES_MAX: usize = 300;

/// One second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sample {
    pub(crate) unix_ms: u64,
    pub(crate) leader: u64,
    pub(crate) term: u64,
    pub(crate) locks: u64,
    pub(crate) waiters: u64,
    pub(crate) sessions: u64,
    /// Absent when it is not known: there is no leader, or a new one since a moment.
    #[serde(flatten)]
    pub(crate) rates: Option<Rates>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    pub(crate) granted: f64,
    pub(crate) queued: f64,
    pub(crate) released: f64,
    pub(crate) lost: f64,
    pub(crate) deadlocks: f64,
    /// Milliseconds; absent if nothing was granted.
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// When it was, and the numbers of each node that counted something.
    last: (u64, BTreeMap<u64, Activity>),
    kept: VecDeque<Sample>,
}

impl Samples {
    /// With the views of all nodes, if there are several groups.
    pub(crate) fn take(
        &mut self,
        unix_ms: u64,
        cluster: &ClusterStatusResponse,
        views: &[NodeView],
    ) -> Sample {
        let sum = |of: fn(&GroupStatus) -> u64| cluster.groups.iter().map(of).sum::<u64>();
        let first = cluster.groups.first();
        let counted = counted(cluster, views);
        let (then_ms, then) = &self.last;
        let done = counted.iter().filter_map(|(node, now)| since(then.get(node)?, now));
        let rates = done.reduce(sum_of).and_then(|done| {
            let elapsed_ms = unix_ms.saturating_sub(*then_ms);
            (elapsed_ms > 0).then(|| rates(&done, elapsed_ms))
        });
        self.last = (unix_ms, counted);
        let sample = Sample {
            unix_ms,
            leader: first.map_or(0, |group| group.leader),
            term: first.map_or(0, |group| group.term),
            locks: sum(|group| group.locks),
            waiters: sum(|group| group.waiters),
            sessions: sum(|group| group.sessions),
            rates,
        };
        if self.kept.len() == SAMPLES_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(sample.clone());
        sample
    }

    pub(crate) fn kept(&self) -> &VecDeque<Sample> {
        &self.kept
    }

    /// How often the leader changed, in the time that is kept.
    pub(crate) fn leader_changes(&self) -> u64 {
        let mut leaders =
            self.kept.iter().map(|sample| sample.leader).filter(|leader| *leader != 0);
        let Some(mut last) = leaders.next() else { return 0 };
        let mut changes = 0;
        for leader in leaders {
            changes += u64::from(leader != last);
            last = leader;
        }
        changes
    }
}

/// The activity of the nodes that lead groups. Of a single group, that is the node that answered: a follower that could
/// not ask the leader tells its own, which does not count.
fn counted(cluster: &ClusterStatusResponse, views: &[NodeView]) -> BTreeMap<u64, Activity> {
    let activity = |view: &ClusterStatusResponse| view.groups.first()?.activity.clone();
    if cluster.groups.len() > 1 {
        let all = views.iter();
        return all.filter_map(|(node, view)| Some((*node, activity(view.as_ref()?)?))).collect();
    }
    let leads = |group: &GroupStatus| group.leader == cluster.answered_by;
    let is_led = cluster.groups.first().is_some_and(leads);
    let own = activity(cluster).filter(|_| is_led);
    own.map(|activity| (cluster.answered_by, activity)).into_iter().collect()
}

/// What a node has done between two moments.
fn since(then: &Activity, now: &Activity) -> Option<Activity> {
    // Less than before: it was started again.
    if now.granted < then.granted {
        return None;
    }
    let class = |(at, class): (usize, &WaitClass)| {
        let before = then.wait_classes.get(at).map_or(0, |class| class.grants);
        WaitClass { grants: class.grants.saturating_sub(before), ..*class }
    };
    Some(Activity {
        granted: now.granted - then.granted,
        queued: now.queued.saturating_sub(then.queued),
        released: now.released.saturating_sub(then.released),
        lost: now.lost.saturating_sub(then.lost),
        deadlocks: now.deadlocks.saturating_sub(then.deadlocks),
        wait_classes: now.wait_classes.iter().enumerate().map(class).collect(),
    })
}

fn sum_of(mut sum: Activity, more: Activity) -> Activity {
    sum.granted += more.granted;
    sum.queued += more.queued;
    sum.released += more.released;
    sum.lost += more.lost;
    sum.deadlocks += more.deadlocks;
    // All nodes have the same classes, unless one has another version.
    for (class, other) in sum.wait_classes.iter_mut().zip(more.wait_classes) {
        class.grants += other.grants;
    }
    sum
}

fn rates(done: &Activity, elapsed_ms: u64) -> Rates {
    let per_second = |count: u64| rate(count, elapsed_ms);
    Rates {
        granted: per_second(done.granted),
        queued: per_second(done.queued),
        released: per_second(done.released),
        lost: per_second(done.lost),
        deadlocks: per_second(done.deadlocks),
        p50: quantile_ms(&done.wait_classes, 0.50),
        p95: quantile_ms(&done.wait_classes, 0.95),
        p99: quantile_ms(&done.wait_classes, 0.99),
    }
}

/// In a second, to one decimal place.
pub(crate) fn rate(count: u64, elapsed_ms: u64) -> f64 {
    (count as f64 * 10_000.0 / elapsed_ms.max(1) as f64).round() / 10.0
}

/// Evenly spread within its class; what is above all others but has no bound counts as the last that has.
fn quantile_ms(classes: &[WaitClass], quantile: f64) -> Option<f64> {
    const LONGEST_SECONDS: f64 = 1e9;
    let all: u64 = classes.iter().map(|class| class.grants).sum();
    if all == 0 {
        return None;
    }
    let wanted = quantile * all as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for class in classes.iter().filter(|class| class.up_to_seconds < LONGEST_SECONDS) {
        let count = class.grants as f64;
        if count > 0.0 && below + count >= wanted {
            let share = ((wanted - below) / count).clamp(0.0, 1.0);
            let seconds = lower + share * (class.up_to_seconds - lower);
            return Some((seconds * 1e5).round() / 100.0);
        }
        below += count;
        lower = class.up_to_seconds;
    }
    Some(lower * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(grants: [u64; 3]) -> Vec<WaitClass> {
        let bounds = [0.0005, 0.001, f64::MAX].into_iter().zip(grants);
        bounds.map(|(up_to_seconds, grants)| WaitClass { up_to_seconds, grants }).collect()
    }

    /// Node `leader` leads, and has granted so many, none of them in less than 0.5 or more than 1 ms.
    fn led_by(leader: u64, granted: u64) -> ClusterStatusResponse {
        let wait_classes = classes([0, granted, 0]);
        let activity = Some(Activity { granted, wait_classes, ..Default::default() });
        let group = GroupStatus { leader, locks: 7, activity, ..Default::default() };
        ClusterStatusResponse { groups: vec![group], answered_by: leader, ..Default::default() }
    }

    /// What a follower says that finds no leader.
    fn leaderless() -> ClusterStatusResponse {
        ClusterStatusResponse { answered_by: 3, ..led_by(0, 5) }
    }

    #[test]
    fn rates_are_per_second_and_quantiles_of_what_was_granted_since() {
        let mut samples = Samples::default();
        assert_eq!(samples.take(1_000, &led_by(1, 100), &[]).rates, None);
        let rates = samples.take(3_000, &led_by(1, 300), &[]).rates.unwrap();
        assert_eq!(rates.granted, 100.0);
        assert_eq!((rates.p50, rates.p99), (Some(0.75), Some(1.0)));
        let idle = samples.take(4_000, &led_by(1, 300), &[]).rates.unwrap();
        assert_eq!((idle.granted, idle.p50), (0.0, None));
    }

    #[test]
    fn numbers_of_another_leader_are_not_compared_with_those_of_the_last() {
        let mut samples = Samples::default();
        samples.take(1_000, &led_by(1, 100), &[]);
        assert_eq!(samples.take(2_000, &led_by(2, 900), &[]).rates, None);
        assert!(samples.take(3_000, &led_by(2, 950), &[]).rates.is_some());
        assert_eq!(samples.take(4_000, &leaderless(), &[]).rates, None);
        samples.take(5_000, &led_by(2, 950), &[]);
        // It was started again.
        assert_eq!(samples.take(6_000, &led_by(2, 10), &[]).rates, None);
        assert_eq!(samples.leader_changes(), 1);
    }

    #[test]
    fn with_several_groups_the_activity_of_all_nodes_is_added_up() {
        // Node 1 answers and leads group 1; node 2 leads group 2.
        let cluster = |granted: u64| {
            let mut cluster = led_by(1, granted);
            cluster.groups.push(GroupStatus { group: 2, leader: 2, ..Default::default() });
            cluster
        };
        let view = |node: u64, granted: u64| (node, Some(led_by(node, granted)));
        let mut samples = Samples::default();
        let first = samples.take(1_000, &cluster(10), &[view(1, 10), view(2, 500), (3, None)]);
        assert_eq!(first.rates, None);
        let rates = samples.take(2_000, &cluster(20), &[view(1, 20), view(2, 600), view(3, 7)]);
        assert_eq!(rates.rates.map(|rates| rates.granted), Some(110.0));
        // Node 2 was started again, and node 1 does not answer.
        let rates = samples.take(3_000, &cluster(20), &[(1, None), view(2, 5), view(3, 9)]);
        assert_eq!(rates.rates.map(|rates| rates.granted), Some(2.0));
        assert_eq!(samples.take(4_000, &cluster(20), &[]).rates, None);
    }

    #[test]
    fn a_duration_above_all_bounds_counts_in_the_last_bucket() {
        assert_eq!(quantile_ms(&classes([0, 0, 1]), 0.5), Some(1.0));
        assert_eq!(quantile_ms(&classes([0, 0, 0]), 0.5), None);
        assert_eq!(quantile_ms(&[], 0.5), None);
    }

    #[test]
    fn only_the_last_minutes_are_kept() {
        let mut samples = Samples::default();
        for second in 0..=SAMPLES_MAX as u64 {
            samples.take(second * 1_000, &led_by(1, 0), &[]);
        }
        assert_eq!(samples.kept().len(), SAMPLES_MAX);
        assert_eq!(samples.kept()[0].unix_ms, 1_000);
    }
}
