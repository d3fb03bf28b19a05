//! Who only comes to stand in a queue, behind others, can wait a moment for company.
//!
//! Its commit changes nothing that anybody waits for. The release that hands the lock over is often on its way
//! meanwhile, and would have to wait for the sync of that commit. In one entry both cost one sync, and the lock goes on
//! sooner. Whatever comes takes all with it that waits, in the order in which it came.

use std::time::Duration;

use holdfast_core::Command;

use super::Replica;

/// Nothing to who has to wait for a holder, and those before it. A shard sleeps for whole milliseconds.
const COMPANY_WITHIN: Duration = Duration::from_millis(1);
/// So many share their sync already. And whether each would have to wait takes looking it up.
const ALONE_MAX: usize = 16;

impl Replica {
    /// Whether what is queued is better proposed a little later.
    pub(super) fn awaits_company(&mut self) -> bool {
        let all_would_wait = (1..=ALONE_MAX).contains(&self.queued.len())
            && self.queued.iter().all(|(_, command)| match command {
                Command::Acquire(acquire) => self.table.would_wait_behind_others(acquire),
                _ => false,
            });
        if !all_would_wait {
            self.alone_since = None;
            return false;
        }
        let since = *self.alone_since.get_or_insert(self.told_time);
        let is_patient = self.told_time - since < COMPANY_WITHIN;
        if !is_patient {
            self.alone_since = None;
        }
        is_patient
    }

    /// When the company of those who wait for it must have come, from now.
    pub(super) fn company_within(&self) -> Option<Duration> {
        let since = self.alone_since.filter(|_| !self.queued.is_empty())?;
        Some((since + COMPANY_WITHIN).saturating_sub(self.told_time))
    }
}
