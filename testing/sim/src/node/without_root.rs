//! Gives up the leadership of groups while this node does not hear the leader of the root group, as the server does
//! (`rpc/without_root.rs`): its copy of the root group gets no news of the policy and of the members.

use std::time::Duration;

use holdfast_replica::{GroupId, NodeId};

use super::Running;

/// As in the server.
const PATIENCE: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct WithoutRoot {
    due: Option<Duration>,
    tries: usize,
}

impl Running {
    pub(super) fn give_up_groups_without_root(&mut self, node: NodeId, now: Duration) {
        let others = match self.groups.split_first() {
            Some((_, others)) if !others.is_empty() => others,
            _ => return,
        };
        if self.root_leader_heard_by(node).is_some() {
            self.without_root.due = None;
            return;
        }
        if *self.without_root.due.get_or_insert(now + PATIENCE) > now {
            return;
        }
        let led: Vec<GroupId> =
            others.iter().filter(|group| group.leadership.is_here).map(|group| group.id).collect();
        if led.is_empty() {
            return;
        }
        for group in led {
            let to = self.next_leader(group);
            self.engine.hand_over(group, to, ());
        }
        self.without_root.due = Some(now + AGAIN_AFTER);
        self.without_root.tries += 1;
    }

    fn root_leader_heard_by(&self, node: NodeId) -> Option<NodeId> {
        let root = self.engine.replica(GroupId::FIRST)?;
        root.membership().heard_leader(node, root.leadership().leader)
    }

    /// Another voter each time.
    fn next_leader(&self, group: GroupId) -> Option<NodeId> {
        let replica = self.engine.replica(group)?;
        let here = replica.leadership().leader;
        let voters = &replica.membership().configuration.voters;
        let others: Vec<NodeId> =
            voters.iter().copied().filter(|voter| Some(*voter) != here).collect();
        others.get(self.without_root.tries % others.len().max(1)).copied()
    }
}
