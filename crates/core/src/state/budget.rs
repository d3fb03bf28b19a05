//! The budget of a log entry: a number of steps for all its commands together.

use crate::model::id::LogIndex;
use crate::model::time::LogicalTime;

/// What the searches of this table have cost since it was created or decoded. It is not part of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCost {
    /// Waiters, holders and places that searches have visited.
    pub steps: u64,
    /// Searches that were not made, or not finished, because the bound was reached.
    pub skipped: u64,
}

/// Identifies an entry: its index, and its time for a table that is used without a log.
pub(crate) type EntryId = (LogIndex, LogicalTime);

/// Steps that a log entry may still take. Each entry begins with all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryBudget {
    entry: EntryId,
    left: usize,
}

impl EntryBudget {
    pub(crate) const UNUSED: EntryBudget =
        EntryBudget { entry: (LogIndex(0), LogicalTime::ZERO), left: usize::MAX };

    /// What is left for this entry, of so many steps.
    pub(crate) fn left(&self, entry: EntryId, steps_max: usize) -> usize {
        if self.entry == entry { self.left.min(steps_max) } else { steps_max }
    }

    pub(crate) fn set_left(&mut self, entry: EntryId, left: usize) {
        *self = EntryBudget { entry, left };
    }
}
