//! One hold, as shared by the session and its guard.
//!
//! A guard reads it without a message to the session. Methods that depend on the present time take it as an argument.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_proto::Guarantee;
use holdfast_proto::v1;
use holdfast_proto::v1::{Grant, Mode, ReleaseRequest};

use crate::error::{LossReason, Lost, Since};
use crate::lease::{HoldId, Leases, LocalTime};
use crate::loss::{Loss, LossSignal};
use crate::tier::{Tier, guarantee_of};

#[derive(Debug)]
pub struct Hold {
    pub(crate) key: HoldKey,
    /// Guards that entered one hold several times have one lease.
    pub(crate) lease: HoldId,
    /// The call that it was granted to.
    pub(crate) call: u64,
    pub name: String,
    /// The age to ask for the next lock of the same transaction with.
    pub since: Option<Since>,
    pub guarantee: Guarantee,
    held_as: SharedHeldAs,
    leases: Arc<Mutex<Leases>>,
    loss: Loss,
    /// The cluster itself ended the hold, so there is nothing to release.
    has_ended: AtomicBool,
}

/// Sorted by the acquire by which the cluster knows the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HoldKey {
    pub(crate) acquire: u64,
    /// Each guard has its own.
    pub(crate) entry: u64,
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    Released,
    /// The lock was held under this token by another session, or the token was never this session's.
    NotOwner,
    AlreadyReleased,
    /// The hold had ended on its own before.
    Expired,
    /// The program worked without a lock while the efficiency tier was down.
    NothingHeld,
}

impl ReleaseOutcome {
    /// `None` for an outcome that this version does not know.
    pub fn from_wire(outcome: v1::ReleaseOutcome) -> Option<ReleaseOutcome> {
        match outcome {
            v1::ReleaseOutcome::Unspecified => None,
            v1::ReleaseOutcome::Released => Some(ReleaseOutcome::Released),
            v1::ReleaseOutcome::NotOwner => Some(ReleaseOutcome::NotOwner),
            v1::ReleaseOutcome::AlreadyReleased => Some(ReleaseOutcome::AlreadyReleased),
            v1::ReleaseOutcome::Expired => Some(ReleaseOutcome::Expired),
        }
    }
}

/// The state of the hold in the cluster, as far as is known. Guards that entered one hold several times share it.
#[derive(Debug)]
struct HeldAs {
    mode: Mode,
    token: u64,
    fence: String,
    /// It is on its way to another session.
    is_leaving: bool,
}

type SharedHeldAs = Arc<Mutex<HeldAs>>;

impl HoldKey {
    /// Of the holds that the cluster knows by this acquire.
    pub(crate) fn range_of(acquire: u64) -> RangeInclusive<HoldKey> {
        HoldKey { acquire, entry: 0 }..=HoldKey { acquire, entry: u64::MAX }
    }

    #[cfg(feature = "planted")]
    pub(crate) fn range_of_all() -> RangeInclusive<HoldKey> {
        HoldKey { acquire: 0, entry: 0 }..=HoldKey { acquire: u64::MAX, entry: u64::MAX }
    }
}

/// The acquire and the call that a new hold comes from, and its lease.
pub(crate) struct HoldOrigin {
    pub(crate) key: HoldKey,
    pub(crate) lease: HoldId,
    pub(crate) call: u64,
    pub(crate) since: Option<Since>,
}

impl Hold {
    /// `entered`: the hold that it enters again.
    pub(crate) fn new(
        origin: HoldOrigin,
        grant: Grant,
        entered: Option<&Hold>,
        leases: Arc<Mutex<Leases>>,
        loss: Loss,
    ) -> Hold {
        let (mode, guarantee) = (grant.mode(), guarantee_of(&grant));
        let held_as = match entered {
            Some(hold) => {
                hold.convert(&grant);
                Arc::clone(&hold.held_as)
            }
            None => {
                let (token, fence, is_leaving) = (grant.token, grant.fence, false);
                Arc::new(Mutex::new(HeldAs { mode, token, fence, is_leaving }))
            }
        };
        Hold {
            key: origin.key,
            lease: origin.lease,
            call: origin.call,
            since: origin.since,
            guarantee,
            held_as,
            name: grant.name,
            leases,
            loss,
            has_ended: AtomicBool::new(false),
        }
    }

    /// The cluster has reported the end of the hold.
    pub(crate) fn end(&self, reason: LossReason) {
        self.has_ended.store(true, Ordering::Release);
        let has_own_ttl = self.leases().has_own_end(self.lease);
        self.loss.report(match reason {
            // The cluster has one reason for both.
            LossReason::HoldTtl if !has_own_ttl => LossReason::SessionExpired,
            reason => reason,
        });
    }

    /// The client no longer trusts the hold, but the cluster may still have it, so it must be released.
    pub(crate) fn lose(&self, reason: LossReason) {
        self.loss.report(reason);
    }

    /// The hold has another mode, and perhaps another token.
    pub(crate) fn convert(&self, grant: &Grant) {
        let mut held_as = self.held_as();
        (held_as.mode, held_as.token) = (grant.mode(), grant.token);
        held_as.fence.clone_from(&grant.fence);
    }

    /// While it may be another session's already, it gives no token.
    pub fn set_leaving(&self, is_leaving: bool) {
        self.held_as().is_leaving = is_leaving;
    }

    /// Whether the cluster itself said that the hold ended, so that there is nothing to release.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    pub(crate) fn loss_or_closed(&self) -> LossReason {
        self.loss.reason().unwrap_or(LossReason::SessionClosed)
    }

    /// Ready when a loss is reported. The passing of time alone does not trigger it: see [`Hold::valid_until`].
    pub fn loss_signal(&self) -> LossSignal {
        self.loss.signal()
    }

    /// The fencing token, or an error if the lock may have ended.
    pub fn token(&self, now: LocalTime) -> Result<u64, Lost> {
        self.check(now)?;
        Ok(self.held_as().token)
    }

    /// The token in full form, or an error if the lock may have ended.
    pub fn fence(&self, now: LocalTime) -> Result<String, Lost> {
        self.check(now)?;
        Ok(self.held_as().fence.clone())
    }

    /// Under which the cluster knows the hold, whether or not it can be trusted.
    pub fn last_token(&self) -> u64 {
        self.held_as().token
    }

    /// The request by which the cluster knows the hold.
    pub fn acquire_id(&self) -> u64 {
        self.key.acquire
    }

    pub fn mode(&self) -> Mode {
        self.held_as().mode
    }

    /// Without its request id.
    pub(crate) fn release_request(&self) -> ReleaseRequest {
        ReleaseRequest {
            name: self.name.clone(),
            token: self.last_token(),
            acquire_request_id: self.key.acquire,
            tier: self.tier().to_wire().into(),
            ..Default::default()
        }
    }

    /// The tier that holds it.
    pub(crate) fn tier(&self) -> Tier {
        Tier::of(self.guarantee)
    }

    /// Whether the lock is certainly held.
    pub fn check(&self, now: LocalTime) -> Result<(), Lost> {
        let is_certain = self.valid_until().is_some_and(|end| now < end);
        #[cfg(feature = "planted")]
        let is_certain = is_certain || crate::planted::Bug::TokenPastLease.is_active();
        if !is_certain {
            self.loss.report(self.ends_by());
        }
        match self.loss.reason() {
            Some(reason) => Err(Lost { reason }),
            None if self.held_as().is_leaving => Err(Lost { reason: LossReason::Transferred }),
            None => Ok(()),
        }
    }

    /// The reason for its end if no further answer comes.
    pub fn ends_by(&self) -> LossReason {
        let own = self.leases().ends_before_session(self.lease);
        if own { LossReason::OwnTimeOver } else { LossReason::Expired }
    }

    pub fn valid_until(&self) -> Option<LocalTime> {
        self.leases().valid_until(self.lease)
    }

    pub fn at_risk_from(&self) -> Option<LocalTime> {
        self.leases().at_risk_from(self.lease)
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_as(&self) -> MutexGuard<'_, HeldAs> {
        self.held_as.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
