//! Which generation of the policy each group has at this node: set by the shard, awaited by the rest of the node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_replica::GroupId;
use tokio::sync::watch;
use tokio::time::timeout;

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyGenerations(Arc<watch::Sender<BTreeMap<GroupId, u64>>>);

impl PolicyGenerations {
    pub(crate) fn set(&self, group: GroupId, generation: u64) {
        self.0.send_modify(|known| {
            known.insert(group, generation);
        });
    }

    pub(crate) fn all(&self) -> BTreeMap<GroupId, u64> {
        self.0.borrow().clone()
    }

    /// Waits until all groups have this generation or a later one, at most so long. Returns the groups that do not have
    /// it then. What this node has applied is committed in the group, so it is in force there.
    pub(crate) async fn groups_behind(&self, generation: u64, patience: Duration) -> Vec<GroupId> {
        let mut watch = self.0.subscribe();
        let have_it = |known: &BTreeMap<GroupId, u64>| known.values().all(|has| *has >= generation);
        // Late or not, the answer is what is known then.
        let _ = timeout(patience, watch.wait_for(have_it)).await;
        let known = self.0.borrow();
        let behind = known.iter().filter(|(_, has)| **has < generation);
        behind.map(|(group, _)| *group).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn groups_without_the_policy_are_named_when_time_is_up() {
        let generations = PolicyGenerations::default();
        for (group, generation) in [(1, 3), (2, 2), (3, 4)] {
            generations.set(GroupId(group), generation);
        }
        assert_eq!(generations.groups_behind(2, Duration::ZERO).await, []);
        assert_eq!(generations.groups_behind(3, Duration::ZERO).await, [GroupId(2)]);
        let waiter = generations.clone();
        let waiting =
            tokio::spawn(async move { waiter.groups_behind(3, Duration::from_secs(60)).await });
        tokio::task::yield_now().await;
        generations.set(GroupId(2), 3);
        assert_eq!(waiting.await.unwrap(), []);
    }
}
