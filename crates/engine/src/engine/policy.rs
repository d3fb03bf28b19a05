//! How the policy of the root group reaches the other groups.
//!
//! Every node runs all groups. So the node that leads a group takes the policy from its own copy of the root group's
//! table, and proposes it there. No message between nodes carries a policy, and no node believes another about it.
//!
//! * The root group is the authority: nothing is ever proposed to it.
//! * A policy that the root group has under rules before 9 is not proposed: it does not say which sessions have ended.
//! * The leader of a group looks at each pass of the group. When the policy of the root group changes here, all groups get
//!   a pass.

use holdfast_core::RulesVersion;

use super::{Engine, Group, ROOT};
use crate::host::Host;
use crate::planted::Bug;

impl<H: Host> Engine<H> {
    /// Before the groups propose: the groups that are led here and lack the policy of the root group get it.
    pub(super) fn offer_policy(&mut self) {
        let generation = self.policy_generation;
        for number in 0..self.groups.ready_count() {
            let Some(Group { id, replica, .. }) = self.groups.ready(number) else { continue };
            let id = *id;
            if id == ROOT || !replica.wants_policy(generation) {
                continue;
            }
            let Some(policy) =
                self.groups.get(ROOT).map(|root| root.replica.table().access().clone())
            else {
                return;
            };
            if let Some(Group { replica, .. }) = self.groups.get_mut(id) {
                replica.offer_policy(&policy);
            }
        }
    }

    /// After entries were applied. Returns whether the policy of the root group has changed. Then all groups take part
    /// in the next pass.
    pub(super) fn notice_policy(&mut self) -> bool {
        let Some(Group { replica: root, .. }) = self.groups.get(ROOT) else { return false };
        let generation = root.table().access().generation();
        let is_complete = root.table().rules() >= RulesVersion::NINE;
        if generation == self.policy_generation || !is_complete || Bug::PolicyNotOffered.is_active()
        {
            return false;
        }
        self.policy_generation = generation;
        self.groups.inputs().for_each(drop);
        true
    }
}
