//! How the driver keeps the memory tier sure that this node leads: by linearizable reads, each of which proves
//! that a quorum followed this node after the moment at which it was asked for. Whoever is elected later is so after
//! that moment, and waits for as long as this node may go on.

use std::time::Duration;

use holdfast_replica::{Leadership, Replica};
use tokio::sync::oneshot;

use super::Driver;
use super::callers::ReadReply;
use super::inbox::Query;
use crate::boot_clock::BootTime;
use crate::memory_tier::MemoryTier;

/// Clocks run within 1 % of each other, on either side.
const RATE_PERCENT: u32 = 98;

#[derive(Debug)]
pub(super) struct Sureness {
    /// How long a confirmation counts.
    lasts: Duration,
    /// As long as that by any clock. It is less than an election timeout, so that an ordinary election costs no more.
    waits: Duration,
    /// The latest moment of which it is known that this node led.
    confirmed: Option<BootTime>,
    /// The latest that was asked for, by the driver itself.
    asked: Option<BootTime>,
    /// What was asked before tells nothing: somebody else was told to lead.
    doubted: Option<BootTime>,
    /// This node is about to stop.
    has_ended: bool,
}

impl Sureness {
    /// All nodes are configured alike.
    pub(super) fn new(tick: Duration, election_timeout: Duration) -> Sureness {
        let waits = election_timeout.saturating_sub(tick * 2);
        let lasts = waits * RATE_PERCENT / 100;
        Sureness { lasts, waits, confirmed: None, asked: None, doubted: None, has_ended: false }
    }

    /// How long after an election no leader of before can be sure any more. The tier counts whole milliseconds.
    pub(super) fn after_others(&self) -> Duration {
        self.waits + Duration::from_millis(1)
    }

    pub(super) fn confirmed(
        &mut self,
        memory: &MemoryTier,
        leadership: Leadership,
        asked: BootTime,
    ) {
        let is_doubted = self.has_ended || self.doubted.is_some_and(|since| asked <= since);
        if leadership.is_here && !is_doubted {
            self.confirmed = self.confirmed.max(Some(asked));
            memory.confirm(leadership.term, asked + self.lasts);
        }
    }

    /// Somebody else was told to lead, and need not wait until it could be elected.
    pub(super) fn doubt(&mut self, memory: &MemoryTier, now: BootTime) {
        self.doubted = Some(now);
        self.forget();
        memory.doubt();
    }

    /// Nothing is confirmed any more.
    pub(super) fn end(&mut self, memory: &MemoryTier) {
        self.has_ended = true;
        memory.doubt();
    }

    /// Another term: what was confirmed means nothing.
    pub(super) fn forget(&mut self) {
        (self.confirmed, self.asked) = (None, None);
    }

    /// Half of the time is over, and a question that was asked since has had its time too.
    fn is_due(&self, now: BootTime) -> bool {
        let half = self.lasts / 2;
        self.confirmed.max(self.asked).is_none_or(|last| now.saturating_since(last) >= half)
    }
}

impl Driver {
    /// Costs nothing while nobody uses the tier.
    pub(super) fn keep_memory_tier_sure(&mut self) {
        let now = BootTime::now();
        if !self.memory.is_in_use() || self.stop_by.is_some() || !self.sureness.is_due(now) {
            return;
        }
        let leads = |replica: &&mut Replica| replica.leadership().is_here;
        if let Some(replica) = self.replicas.values_mut().find(leads) {
            // The answer is what it does to the tier.
            let (reply, _) = oneshot::channel();
            let (query, reply) = (Query::Confirm { asked: now }, ReadReply::Call(reply));
            replica.handle_read(self.callers.read(query, reply));
            self.sureness.asked = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_lasts_less_than_the_shortest_election_timeout_and_is_renewed_in_time() {
        let mut sureness = Sureness::new(ms(50), ms(500));
        assert_eq!(sureness.lasts, ms(392));
        let (slowest, fastest) = (0.99, 1.01);
        let next = sureness.after_others() - ms(1);
        assert!(next.div_f64(fastest) >= sureness.lasts.div_f64(slowest), "nobody grants before");
        let start = BootTime::now();
        assert!(sureness.is_due(start));
        sureness.asked = Some(start);
        assert!(!sureness.is_due(start + ms(195)) && sureness.is_due(start + ms(196)));
        let memory = MemoryTier::new();
        let here = Leadership { is_here: true, ..Leadership::default() };
        sureness.confirmed(&memory, here, start + ms(300));
        assert!(!sureness.is_due(start + ms(400)));
        // An answer that comes late changes nothing.
        sureness.confirmed(&memory, here, start + ms(100));
        assert_eq!(sureness.confirmed, Some(start + ms(300)));
        sureness.forget();
        assert!(sureness.is_due(start + ms(400)));
        // What was asked before another was told to lead is no answer any more.
        sureness.doubt(&memory, start + ms(500));
        sureness.confirmed(&memory, here, start + ms(450));
        assert_eq!(sureness.confirmed, None);
        sureness.confirmed(&memory, here, start + ms(510));
        assert_eq!(sureness.confirmed, Some(start + ms(510)));
        sureness.end(&memory);
        sureness.confirmed(&memory, here, start + ms(520));
        assert_eq!(sureness.confirmed, Some(start + ms(510)));
    }
}
