//! A group beside the root group takes over the members of the root group.
//!
//! The leader makes one change at a time, by the same rules as a change that an operator asks for in a cluster with one
//! group: a learner first, a joint state after. What is not possible now is tried again in the next turn.

use super::Replica;
use crate::id::NodeId;
use crate::membership::{ChangeVerdict, Membership, Role};

/// The members of the root group, as this node knows them.
#[derive(Debug, Default)]
pub(super) struct RootMembers {
    known: Option<Membership>,
    /// The members of this group are others.
    differ: bool,
}

impl RootMembers {
    /// Call it when the members of this group have changed.
    pub(super) fn compare(&mut self, own: &Membership) {
        let known = self.known.as_ref();
        self.differ = known.is_some_and(|root| !own.changes_toward(root).is_empty());
    }

    /// A vote is given in the root group first: it can give a node up until then, also one that replaces another.
    pub(super) fn lets_vote(&self, node: NodeId) -> bool {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::VoteBeforeRootGroup.is_active() {
            return true;
        }
        let is_given = |role| matches!(role, Some(Role::Voter | Role::Entering));
        self.known.as_ref().is_none_or(|root| is_given(root.role(node)))
    }

    pub(super) fn id_to_retire(&self, own: &Membership) -> Option<NodeId> {
        own.id_to_retire(self.known.as_ref()?)
    }
}

impl Replica {
    /// The root group has these members. This group gets the same ones, as soon as this replica leads it and the change
    /// is possible.
    pub fn follow_members(&mut self, root: &Membership) {
        self.membership_manager.root_members.known = Some(root.clone());
        self.membership_manager.root_members.compare(&self.membership);
        self.membership_manager.is_recorded = false;
    }

    /// A leader makes the next change, if there is one.
    pub(super) fn follow_root_members(&mut self) {
        let RootMembers { known: Some(root), differ: true } = &self.membership_manager.root_members
        else {
            return;
        };
        let changes = self.membership.changes_toward(root);
        let is_possible = |change: &_| {
            self.membership.judge(change) == Ok(ChangeVerdict::Propose)
                && self.judge_liveness(change).is_ok()
        };
        if let Some(change) = changes.into_iter().find(is_possible) {
            // If it fails, the next turn tries again.
            let _ = self.begin_change(&change);
        }
    }
}
