//! Digests cost time in proportion to the table, and any client may ask for them: for a large table there is a new one only
//! now and then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdfast_replica::{GroupId, Replica};

#[derive(Debug, Default)]
pub(super) struct Digests {
    latest: BTreeMap<GroupId, Digest>,
}

#[derive(Debug)]
struct Digest {
    applied_index: u64,
    made: Instant,
    text: String,
}

impl Digests {
    /// None if it is too early for another one.
    pub(super) fn of(&mut self, group: GroupId, replica: &Replica) -> Option<String> {
        const SMALL_LOCKS_MAX: usize = 10_000;
        const LARGE_INTERVAL: Duration = Duration::from_secs(10);
        let table = replica.table();
        let applied_index = replica.applied_index();
        let is_small = table.lock_count() + table.waiter_count() <= SMALL_LOCKS_MAX;
        match self.latest.get(&group) {
            Some(latest) if latest.applied_index == applied_index => Some(latest.text.clone()),
            Some(latest) if !is_small && latest.made.elapsed() < LARGE_INTERVAL => None,
            _ => {
                let text = table.digest().to_string();
                let made = Instant::now();
                self.latest.insert(group, Digest { applied_index, made, text: text.clone() });
                Some(text)
            }
        }
    }
}
