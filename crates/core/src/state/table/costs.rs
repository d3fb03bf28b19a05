//! What one command and one log entry may still cost.

use crate::model::id::LogIndex;
use crate::model::rules_version::RulesVersion;
use crate::model::time::LogicalTime;
use crate::state::budget::{EntryBudget, EntryId};
use crate::state::table::LockTable;

impl LockTable {
    /// A command of the entry at `index` begins. A stamp lower than an earlier one counts as that.
    pub(crate) fn begin_command(&mut self, index: LogIndex, at: LogicalTime) {
        self.applied_index = self.applied_index.max(index);
        self.now = self.now.max(at);
        self.endings_left = self.limits.expiries_per_tick_max;
    }

    /// Counts one more expiry, unless the present command has reached its limit: other commands wait meanwhile.
    pub(crate) fn may_end_one_more(&mut self) -> bool {
        match self.endings_left.checked_sub(1) {
            Some(left) => self.endings_left = left,
            None => return false,
        }
        true
    }

    /// All commands of an entry of a log have the same time. A table without a log has index 0.
    fn entry(&self) -> EntryId {
        let has_log = self.applied_index > LogIndex(0);
        (self.applied_index, if has_log { LogicalTime::ZERO } else { self.now })
    }

    /// What a search, or several that share it, may cost now.
    pub(crate) fn search_steps(&self) -> usize {
        let steps_max = self.limits.deadlock_walk_max;
        match self.rules >= RulesVersion::TWO {
            true => self.search_budget.left(self.entry(), steps_max),
            false => steps_max,
        }
    }

    /// Of what a search might have cost, so much is left.
    pub(crate) fn search_ended(&mut self, before: usize, left: usize, skipped: u64) {
        self.search_budget.set_left(self.entry(), left);
        self.search_cost.steps += before.saturating_sub(left) as u64;
        self.search_cost.skipped += skipped;
    }

    /// For a table without a log: what follows in this entry may take as many steps for promotions as a new entry.
    pub fn renew_promotion_budget(&mut self) {
        self.promotion_budget = EntryBudget::UNUSED;
    }

    /// What the promotions of this entry may still cost.
    pub(crate) fn promotion_steps(&self) -> usize {
        self.promotion_budget.left(self.entry(), self.limits.promotion_walk_max)
    }

    pub(crate) fn spend_promotion_steps(&mut self, steps: usize) {
        let left = self.promotion_steps().saturating_sub(steps);
        self.promotion_budget.set_left(self.entry(), left);
    }
}
