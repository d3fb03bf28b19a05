//! Delays acquires that would only join a queue, so that they share a log entry with later commands.
//!
//! No caller waits for the commit of such an acquire: another waiter stands before it. The release that hands the lock
//! over often arrives at the same time, and would have to wait for the sync of that commit. In one entry both cost one
//! sync, and the lock is handed over sooner. Any other command ends the delay, and all queued commands are proposed in
//! the order of their arrival.

use std::time::Duration;

use holdfast_core::Command;

use super::Replica;

/// Short, compared to the wait for a holder and for the waiters ahead. A shard sleeps for whole milliseconds.
const PROPOSAL_DELAY_MAX: Duration = Duration::from_millis(1);
/// More commands than this share a sync anyway. Checking each of them also takes a lookup in the table.
const DELAYED_MAX: usize = 16;

impl Replica {
    /// Whether the leader should propose the queued commands a little later.
    pub(super) fn should_delay_proposal(&mut self) -> bool {
        let all_would_wait = (1..=DELAYED_MAX).contains(&self.queued.len())
            && self.queued.iter().all(|(_, command)| match command {
                Command::Acquire(acquire) => self.table.would_wait_behind_others(acquire),
                _ => false,
            });
        if !all_would_wait {
            self.delayed_since = None;
            return false;
        }
        let since = *self.delayed_since.get_or_insert(self.latest_time);
        let is_delayed = self.latest_time - since < PROPOSAL_DELAY_MAX;
        if !is_delayed {
            self.delayed_since = None;
        }
        is_delayed
    }

    /// How long the queued commands may still be delayed; none if they are not.
    pub(super) fn proposal_delay_left(&self) -> Option<Duration> {
        let since = self.delayed_since.filter(|_| !self.queued.is_empty())?;
        Some((since + PROPOSAL_DELAY_MAX).saturating_sub(self.latest_time))
    }
}
