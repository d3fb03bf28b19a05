//! What the guard and the keeper both know about one hold.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_client_core::error::{LossReason, Lost};
use holdfast_client_core::lease::{LocalTime, safe_end};
use holdfast_client_core::loss::{Loss, LossSignal};
use holdfast_fence::{Fence, Guarantee};

use holdfast_lease_clock as clock;

#[derive(Debug)]
pub struct Hold {
    pub name: String,
    pub token: u64,
    lease: Mutex<Lease>,
    loss: Loss,
}

/// Until when the hold can be trusted. Every span counts from before its request was sent, so that the time on the
/// way is not trusted; the margin is that of the cluster's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lease {
    valid_until: LocalTime,
    span: Duration,
    /// The caller extends it, and not the keeper.
    is_own: bool,
}

impl Hold {
    pub(crate) fn new(name: String, token: u64, granted: Granted) -> Hold {
        let Granted { sent_at, ttl, is_own } = granted;
        let lease = Lease { valid_until: safe_end(sent_at, ttl), span: ttl, is_own };
        Hold { name, token, lease: Mutex::new(lease), loss: Loss::default() }
    }

    /// The first reason stands.
    pub(crate) fn lose(&self, reason: LossReason) {
        self.loss.report(reason);
    }

    /// An extension goes out. It may shorten the hold, and takes effect before its answer is here.
    pub(super) fn extending(&self, sent_at: LocalTime, ttl: Duration) {
        let mut lease = self.lease();
        lease.valid_until = lease.valid_until.min(safe_end(sent_at, ttl).max(sent_at));
    }

    pub(super) fn extended(&self, sent_at: LocalTime, ttl: Duration) {
        let mut lease = self.lease();
        lease.valid_until = safe_end(sent_at, ttl);
        lease.span = ttl;
    }

    /// From now on its end is meant: it reached its maximum.
    pub(super) fn ends_by_itself(&self) {
        self.lease().is_own = true;
    }

    /// Reads the clock.
    pub fn check(&self) -> Result<(), Lost> {
        let lease = *self.lease();
        if clock::now() >= lease.valid_until {
            self.lose(self.ends_by());
        }
        match self.loss.reason() {
            Some(reason) => Err(Lost { reason }),
            None => Ok(()),
        }
    }

    /// What ends it if nothing more is heard.
    pub fn ends_by(&self) -> LossReason {
        if self.lease().is_own { LossReason::OwnTimeOver } else { LossReason::Expired }
    }

    pub fn fence(&self) -> String {
        let fence = Fence::new(Guarantee::BestEffort, &self.name, self.token);
        fence.map(|fence| fence.to_string()).unwrap_or_default()
    }

    pub fn valid_until(&self) -> LocalTime {
        self.lease().valid_until
    }

    pub fn at_risk_from(&self) -> LocalTime {
        let lease = *self.lease();
        LocalTime(lease.valid_until.0.saturating_sub(lease.span / 3))
    }

    pub fn loss_signal(&self) -> LossSignal {
        self.loss.signal()
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// On what a hold rests at first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Granted {
    pub(crate) sent_at: LocalTime,
    pub(crate) ttl: Duration,
    pub(crate) is_own: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(ttl: Duration) -> (Hold, LocalTime) {
        let sent_at = clock::now();
        let granted = Granted { sent_at, ttl, is_own: false };
        (Hold::new("a".to_owned(), 7, granted), sent_at)
    }

    #[test]
    fn a_hold_is_trusted_from_its_sending_less_the_margin_and_once_lost_stays_lost() {
        let (hold, sent_at) = hold(Duration::from_secs(10));
        let after = |ms| LocalTime(sent_at.0 + Duration::from_millis(ms));
        assert_eq!(hold.valid_until(), after(9_798));
        hold.check().unwrap();
        hold.lose(LossReason::Gone);
        hold.extended(after(5_000), Duration::from_secs(10));
        hold.lose(LossReason::Expired);
        assert_eq!(hold.check(), Err(Lost { reason: LossReason::Gone }));
    }

    #[test]
    fn an_extension_that_shortens_a_hold_counts_from_its_sending() {
        let (hold, sent_at) = hold(Duration::from_secs(10));
        let before = hold.valid_until();
        hold.extending(sent_at, Duration::from_secs(20));
        assert_eq!(hold.valid_until(), before, "what is longer counts when it is answered");
        hold.extending(sent_at, Duration::from_secs(1));
        assert_eq!(hold.valid_until(), LocalTime(sent_at.0 + Duration::from_millis(978)));
    }

    #[test]
    fn an_expired_hold_gives_no_token_whatever_the_servers_answered() {
        let (hold, _) = hold(Duration::ZERO);
        assert_eq!(hold.check(), Err(Lost { reason: LossReason::Expired }));
        assert_eq!(hold.fence().get(..6), Some("hf1.B."));
    }
}
