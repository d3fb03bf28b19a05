//! How a leader makes its group adopt the policy of the root group: with a log entry.
//!
//! The policy comes from the table of the root group on the same node, so the root group has committed it. A group whose
//! generation is higher ignores the entry, so it does no harm if several leaders propose, or an older one.

use holdfast_core::{Access, Command, RulesVersion};

use super::Replica;

/// What a leader has proposed.
#[derive(Debug, Default)]
pub(super) struct PolicyAdoption {
    /// The term and the generation of the last proposal. Within a term, nothing proposed is lost.
    proposed: Option<(u64, u64)>,
}

impl Replica {
    /// Whether this leader has to propose a policy of this generation. A proposal that is under way comes first.
    pub fn wants_policy(&self, generation: u64) -> bool {
        let own = self.table.access().generation();
        let is_proposed = self.policy_adoption.proposed.is_some_and(|(term, proposed)| {
            term == self.consensus.term() && (proposed > own || proposed == generation)
        });
        self.table.lacks_policy(generation)
            && !is_proposed
            && self.table.rules() >= RulesVersion::NINE
            && self.consensus.has_committed_in_own_term()
    }

    /// Proposes the policy of the root group, if this leader has to.
    pub fn offer_policy(&mut self, policy: &Access) {
        if self.wants_policy(policy.generation()) {
            self.policy_adoption.proposed = Some((self.consensus.term(), policy.generation()));
            self.queued.push((None, Command::AdoptPolicy(Box::new(policy.clone()))));
        }
    }
}
