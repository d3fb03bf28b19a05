//! The leader lease, for the efficiency tier: how long this node can be sure that it leads. Linearizable reads renew
//! it. Each read proves that a quorum followed this node after the read began. A later leader is elected after that
//! moment, and waits until the lease of this node has ended.

use std::time::Duration;

use holdfast_replica::Leadership;

use crate::boot_time::BootTime;
use crate::planted::Bug;

/// Clocks run within 1 % of each other, on either side.
const RATE_PERCENT: u32 = 98;

#[derive(Debug)]
pub struct LeaderLease {
    /// How long a confirmation counts.
    lasts: Duration,
    /// The same by any clock. It is less than an election timeout, so it does not prolong an ordinary failover.
    waits: Duration,
    /// The latest moment at which this node is known to have led.
    confirmed: Option<BootTime>,
    /// When the engine itself last began a confirming read.
    asked: Option<BootTime>,
    /// Reads that began before this moment confirm nothing: a leadership transfer was under way.
    invalid_through: Option<BootTime>,
    /// This node is about to stop.
    has_ended: bool,
}

impl LeaderLease {
    /// All nodes are configured alike.
    pub fn new(tick: Duration, election_timeout: Duration) -> LeaderLease {
        let waits = election_timeout.saturating_sub(tick * 2);
        LeaderLease {
            lasts: waits * RATE_PERCENT / 100,
            waits,
            confirmed: None,
            asked: None,
            invalid_through: None,
            has_ended: false,
        }
    }

    /// From when on a leader elected before this moment may grant: the leases of all earlier leaders have ended by
    /// then. The tier counts whole milliseconds.
    pub fn opens(&self, elected: BootTime) -> BootTime {
        elected + self.waits + Duration::from_millis(1)
    }

    /// A quorum has confirmed a read that began at this moment. Returns until when no other leader grants anything.
    pub fn confirm(&mut self, leadership: Leadership, asked: BootTime) -> Option<BootTime> {
        let is_invalid = self.has_ended || self.invalid_through.is_some_and(|until| asked <= until);
        if !leadership.is_here || is_invalid {
            return None;
        }
        self.confirmed = self.confirmed.max(Some(asked));
        let lasts = if Bug::LeaseTooLong.is_active() { self.waits * 2 } else { self.lasts };
        Some(asked + lasts)
    }

    /// Leadership is being transferred. The next leader does not wait for an election timeout.
    pub fn invalidate(&mut self, now: BootTime) {
        self.invalid_through = Some(now);
        self.forget();
    }

    /// Nothing is confirmed any more.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// The term changed, so earlier confirmations do not count.
    pub fn forget(&mut self) {
        (self.confirmed, self.asked) = (None, None);
    }

    /// Whether a confirming read is due now. If so, it counts as begun.
    pub fn take_due(&mut self, now: BootTime) -> bool {
        // Half of the lease is over, and a read that began since had enough time as well.
        let half = self.lasts / 2;
        let last = self.confirmed.max(self.asked);
        let is_due = !self.has_ended && last.is_none_or(|last| now.saturating_since(last) >= half);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(moment_ms: u64) -> BootTime {
        BootTime(ms(moment_ms))
    }

    const HERE: Leadership = Leadership { leader: None, is_here: true, term: 1 };

    #[test]
    fn a_leader_lease_ends_before_the_next_leader_can_grant_by_any_clock() {
        let mut lease = LeaderLease::new(ms(50), ms(500));
        assert_eq!(lease.confirm(HERE, at(0)), Some(at(392)));
        let (slowest, fastest) = (0.99, 1.01);
        let next = lease.opens(at(0)).0 - ms(1);
        assert!(next.div_f64(fastest) >= ms(392).div_f64(slowest), "two leaders would grant");
    }

    #[test]
    fn a_leader_lease_is_renewed_after_half_of_its_time() {
        let mut lease = LeaderLease::new(ms(50), ms(500));
        assert!(lease.take_due(at(0)));
        assert!(!lease.take_due(at(195)) && lease.take_due(at(196)));
        lease.confirm(HERE, at(300));
        assert!(!lease.take_due(at(400)));
        // An answer that comes late changes nothing.
        lease.confirm(HERE, at(100));
        assert!(!lease.take_due(at(495)));
        lease.forget();
        assert!(lease.take_due(at(495)));
    }

    #[test]
    fn a_confirmation_requested_before_an_invalidation_is_ignored() {
        let mut lease = LeaderLease::new(ms(50), ms(500));
        lease.invalidate(at(500));
        assert_eq!(lease.confirm(HERE, at(450)), None);
        assert!(lease.confirm(HERE, at(510)).is_some());
        assert_eq!(lease.confirm(Leadership::default(), at(511)), None, "it does not lead");
        lease.end();
        assert_eq!(lease.confirm(HERE, at(520)), None);
        assert!(!lease.take_due(at(10_000)));
    }
}
