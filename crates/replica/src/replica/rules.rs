//! How a leader adopts new rules of the lock table: with a log entry, once every member is known to read such entries.
//!
//! During a rolling upgrade, old followers and a new leader must compute the same table. So `apply` depends on the
//! rules that the log has adopted, and not on the build. A node tells its peers the newest format of log entries that
//! it reads. The leader proposes [`Command::AdoptRules`] when all members read the new format.

use std::collections::BTreeMap;

use holdfast_core::{Command, Outcome, Rejection, RulesVersion};

use super::Replica;
use crate::effect::{Effect, Ticket};
use crate::id::NodeId;

/// The rules, and the first format of log entries that includes them; the newest first.
const RULES_SINCE: [(RulesVersion, u32); 8] = [
    (RulesVersion::NINE, 10),
    (RulesVersion::EIGHT, 9),
    (RulesVersion::SEVEN, 8),
    (RulesVersion::SIX, 7),
    (RulesVersion::FIVE, 6),
    (RulesVersion::FOUR, 5),
    (RulesVersion::THREE, 4),
    (RulesVersion::TWO, 3),
];
/// Nodes whose format is remembered; more than there can be members.
const READERS_MAX: usize = 64;

/// What this replica knows about the builds of the members.
#[derive(Debug, Default)]
pub(super) struct RulesAdoption {
    /// The newest format of log entries that each node reads.
    log_versions: BTreeMap<NodeId, u32>,
    /// The term and the rules in force when an adoption was last proposed. The next proposal waits until one of them
    /// has changed.
    proposed: Option<(u64, RulesVersion)>,
}

impl Replica {
    /// The newest format of log entries that a node reads. The node may be this one.
    pub fn handle_log_version(&mut self, node: NodeId, version: u32) {
        let known = &mut self.rules_adoption.log_versions;
        if known.contains_key(&node) || known.len() < READERS_MAX {
            known.insert(node, version);
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RulesOfTheBuild.is_active()
            && node == self.config.node
            && let Some((rules, _)) = RULES_SINCE.iter().find(|(_, since)| version >= *since)
        {
            let adopt = Command::AdoptRules { version: *rules };
            let index = holdfast_core::LogIndex(self.applied_index);
            self.table.apply(index, self.table.now(), adopt, &mut Vec::new());
        }
    }

    /// As leader, proposes the newest rules that all members can read.
    pub(super) fn adopt_rules_if_all_support(&mut self) {
        let proposal = (self.consensus.term(), self.table.rules());
        if self.table.rules() >= RulesVersion::ADOPTED
            || self.rules_adoption.proposed == Some(proposal)
            || !self.consensus.has_committed_in_own_term()
        {
            return;
        }
        let newer = RULES_SINCE.into_iter().filter(|(rules, _)| *rules > self.table.rules());
        let mut read_by_all = newer.filter(|(_, since)| self.all_members_read(*since));
        if let Some((version, _)) = read_by_all.next() {
            self.rules_adoption.proposed = Some(proposal);
            self.queued.push((None, Command::AdoptRules { version }));
        }
    }

    fn all_members_read(&self, version: u32) -> bool {
        let reads = |node| {
            self.rules_adoption.log_versions.get(node).is_some_and(|reads| *reads >= version)
        };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::RulesBeforeAllReadThem.is_active() {
            return reads(&self.config.node);
        }
        self.membership.members.keys().all(reads)
    }

    /// Whether the log has adopted the rules that this command needs. If not, some member may be unable to read the
    /// command, and the caller gets a rejection.
    pub(super) fn admit_by_rules(&mut self, ticket: Option<Ticket>, command: &Command) -> bool {
        if command.rules_needed() <= self.table.rules() {
            return true;
        }
        if let Some(ticket) = ticket {
            let outcome = Outcome::Rejected(Rejection::RulesNotAdopted);
            self.effects.push(Effect::Answer { ticket, at: self.now(), outcome });
        }
        false
    }
}
