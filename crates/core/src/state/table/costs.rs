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

    /// For a table without a log: what earlier entries have left may cost as much in this entry as in a new one.
    pub fn renew_budgets_of_deferred_work(&mut self) {
        self.promotion_budget = EntryBudget::UNUSED;
        self.ending_budget = EntryBudget::UNUSED;
        self.move_budget = EntryBudget::UNUSED;
    }

    /// What the promotions of this entry may still cost.
    pub(crate) fn promotion_steps(&self) -> usize {
        self.promotion_budget.left(self.entry(), self.limits.promotion_walk_max)
    }

    /// May a session with so many holds and queue places end at once?
    pub(crate) fn may_end_at_once(&mut self, parts: usize) -> bool {
        let left = self.fresh_end_budget.left(self.entry(), self.limits.ended_parts_per_entry_max);
        let Some(rest) = left.checked_sub(parts) else { return false };
        self.fresh_end_budget.set_left(self.entry(), rest);
        true
    }

    /// How many holds and queue places of sessions that earlier entries have ended this entry may still end.
    pub(crate) fn ending_parts_left(&self) -> usize {
        self.ending_budget.left(self.entry(), self.limits.ended_parts_per_entry_max)
    }

    pub(crate) fn spend_ending_parts(&mut self, parts: usize) {
        let left = self.ending_parts_left().saturating_sub(parts);
        self.ending_budget.set_left(self.entry(), left);
    }

    /// What moves of slots may still cost in this entry.
    pub(crate) fn move_steps(&self) -> usize {
        self.move_budget.left(self.entry(), self.limits.move_steps_max)
    }

    pub(crate) fn set_move_steps(&mut self, left: usize) {
        self.move_budget.set_left(self.entry(), left);
    }

    pub(crate) fn spend_promotion_steps(&mut self, steps: usize) {
        let left = self.promotion_steps().saturating_sub(steps);
        self.promotion_budget.set_left(self.entry(), left);
    }
}
