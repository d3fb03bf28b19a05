//! What the publisher of events counts. Of the groups that the node publishes, the metrics show the one that is
//! furthest behind.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_replica::GroupId;

use super::{Level, SharedTally};

#[derive(Debug, Default)]
pub(crate) struct KafkaMetrics {
    pub(crate) records: SharedTally,
    pub(crate) bytes: SharedTally,
    pub(crate) dropped: SharedTally,
    pub(crate) failures: SharedTally,
    pub(crate) connected: Level,
    groups: Mutex<BTreeMap<GroupId, Progress>>,
}

/// How far the events of a group are published.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// This node leads the group.
    is_published_here: bool,
    /// In the lock table's count of events.
    happened: u64,
    published: u64,
    /// The log entry of the last event that this node published.
    published_index: u64,
}

/// The group that is furthest behind, of those that this node publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FurthestBehind {
    /// 0 if this node publishes no group.
    pub(crate) group: u32,
    pub(crate) behind: u64,
    pub(crate) published_index: u64,
}

impl KafkaMetrics {
    /// This node begins to publish the group.
    pub(crate) fn begins(&self, group: GroupId) {
        self.update(group, |progress| progress.is_published_here = true);
    }

    /// Another node publishes the group from now on.
    pub(crate) fn ends(&self, group: GroupId) {
        self.update(group, |progress| progress.is_published_here = false);
    }

    /// So many of the group's events are published, by whichever node.
    pub(crate) fn published(&self, group: GroupId, through: u64) {
        self.update(group, |progress| progress.published = through);
    }

    /// This node has published the group's events up to this one.
    pub(crate) fn published_through(&self, group: GroupId, through: u64, index: u64) {
        self.update(group, |progress| {
            progress.published = through;
            progress.published_index = index;
        });
    }

    /// So many events of the group were counted.
    pub(crate) fn happened(&self, group: GroupId, events: u64) {
        self.update(group, |progress| progress.happened = events);
    }

    /// Of several groups that are as far behind, the first. A node that publishes no group has one of which it told
    /// last how far it was.
    pub(crate) fn furthest_behind(&self) -> FurthestBehind {
        let groups = self.groups();
        let all = groups.iter();
        let worst = all.max_by_key(|(group, progress)| {
            (progress.is_published_here, progress.behind(), Reverse(**group))
        });
        worst.map_or_else(FurthestBehind::default, |(group, progress)| FurthestBehind {
            group: if progress.is_published_here { group.0 } else { 0 },
            behind: progress.behind(),
            published_index: progress.published_index,
        })
    }

    fn update(&self, group: GroupId, change: impl FnOnce(&mut Progress)) {
        change(self.groups().entry(group).or_default());
    }

    fn groups(&self) -> MutexGuard<'_, BTreeMap<GroupId, Progress>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    /// Nothing on a node that does not publish the group.
    fn behind(&self) -> u64 {
        let behind = self.happened.saturating_sub(self.published);
        if self.is_published_here { behind } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(kafka: &KafkaMetrics, number: u32, happened: u64, published: u64) {
        kafka.begins(GroupId(number));
        kafka.happened(GroupId(number), happened);
        kafka.published_through(GroupId(number), published, 10 * u64::from(number));
    }

    #[test]
    fn the_group_that_is_furthest_behind_is_shown_with_its_number() {
        let kafka = KafkaMetrics::default();
        assert_eq!(kafka.furthest_behind(), FurthestBehind::default());
        group(&kafka, 1, 100, 90);
        group(&kafka, 3, 50, 20);
        group(&kafka, 4, 50, 20);
        let worst = FurthestBehind { group: 3, behind: 30, published_index: 30 };
        assert_eq!(kafka.furthest_behind(), worst);
        kafka.published_through(GroupId(3), 50, 31);
        assert_eq!(kafka.furthest_behind().group, 4);
    }

    #[test]
    fn a_group_that_another_node_publishes_is_not_behind_here() {
        let kafka = KafkaMetrics::default();
        group(&kafka, 1, 100, 90);
        group(&kafka, 2, 100, 50);
        kafka.ends(GroupId(2));
        assert_eq!(kafka.furthest_behind().group, 1);
        kafka.ends(GroupId(1));
        let none = kafka.furthest_behind();
        assert_eq!((none.group, none.behind, none.published_index), (0, 0, 10));
    }
}
