//! How the members of the root group become those of the other groups.
//!
//! Every node runs all groups. So the node that leads a group takes the members from its own copy of the root group
//! (`holdfast_replica::Replica::follow_members`). No message between nodes says who the members of another group are.
//!
//! * The root group decides: an operator changes its members only.
//! * One change at a time: the root group refuses a change as long as a group has not made the one before, as far as its
//!   leader knows. Only the node that this is about can be removed or promoted. What the leader knows of another group
//!   may be old, but a group that has followed stays so until the root group changes.

use holdfast_replica::{ChangeRefusal, GroupId, MembershipChange};

use super::groups::{Group, Groups};
use super::{Engine, ROOT};
use crate::host::Host;
use crate::planted::Bug;

impl<H: Host> Groups<H> {
    /// The members of the root group have changed here.
    pub(super) fn follow_root_members(&mut self) {
        let is_followed = self.iter().count() > 1 && !Bug::MembersNotFollowed.is_active();
        let Some(root) = self.get(ROOT).filter(|_| is_followed) else { return };
        let members = root.replica.membership().clone();
        for group in self.inputs().filter(|group| group.id != ROOT) {
            group.replica.follow_members(&members);
        }
    }
}

impl<H: Host> Engine<H> {
    /// The change of the root group that another group has not made yet, and that this one has to wait for.
    pub(super) fn change_before(
        &self,
        id: GroupId,
        change: &MembershipChange,
    ) -> Option<ChangeRefusal> {
        let root = &self.groups.get(id).filter(|group| group.id == ROOT)?.replica;
        // Another node knows more.
        if !root.leadership().is_here || root.membership().is_as_wanted(change) {
            return None;
        }
        let mut others = self.groups.iter().filter(|group| group.id != ROOT);
        others.find_map(|Group { id, replica, .. }| {
            let differences = replica.membership().differences(root.membership());
            // A node that cannot get its vote holds up its group, and with it the removal of the node that it replaces.
            let is_held_up = |node| differences.contains(node);
            // All nodes differ from a copy of the group that is still empty.
            let is_known = replica.membership().cluster.is_some();
            if matches!(change, MembershipChange::Remove { node } if is_known && is_held_up(node)) {
                return None;
            }
            let node = differences.into_iter().find(|node| *node != change.node())?;
            let what = format!("group {id} has not yet made the last change of node {node}");
            Some(ChangeRefusal::UnderWay { what })
        })
    }
}
