//! What the guard and the session's task both know about one hold.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_proto::Guarantee;
use holdfast_proto::v1::{Grant, Mode, ReleaseRequest};
use tokio::sync::watch;

use crate::clock;
use crate::error::{LossReason, Lost, Since};
use crate::lease::{HoldId, Leases, LocalTime};
use crate::loss::Loss;
use crate::tier::{Tier, guarantee_of};

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) key: HoldKey,
    /// Guards that entered one hold several times have one lease.
    pub(crate) lease: HoldId,
    /// Which of the client's sessions it belongs to; a lost session is replaced by the next one.
    pub(crate) session_number: u64,
    pub(crate) name: String,
    pub(crate) since: Option<Since>,
    pub(crate) guarantee: Guarantee,
    held_as: Mutex<HeldAs>,
    leases: Arc<Mutex<Leases>>,
    loss: Loss,
    /// The cluster said so: there is nothing to release.
    has_ended: AtomicBool,
    /// It is on its way to somebody else.
    is_leaving: AtomicBool,
}

/// Sorted by the acquire by which the cluster knows the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HoldKey {
    pub(crate) acquire: u64,
    /// Each guard has its own.
    pub(crate) entry: u64,
}

/// What a conversion changes.
#[derive(Debug, Clone)]
struct HeldAs {
    mode: Mode,
    token: u64,
    fence: String,
}

/// Where a new hold belongs.
pub(crate) struct Place {
    pub(crate) key: HoldKey,
    pub(crate) lease: HoldId,
    pub(crate) session_number: u64,
    pub(crate) since: Option<Since>,
}

impl Hold {
    pub(crate) fn new(place: Place, grant: Grant, leases: Arc<Mutex<Leases>>, loss: Loss) -> Hold {
        let (mode, guarantee) = (grant.mode(), guarantee_of(&grant));
        Hold {
            key: place.key,
            lease: place.lease,
            session_number: place.session_number,
            since: place.since,
            guarantee,
            held_as: Mutex::new(HeldAs { mode, token: grant.token, fence: grant.fence }),
            name: grant.name,
            leases,
            loss,
            has_ended: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
        }
    }

    /// The cluster said that the hold is no more.
    pub(crate) fn end(&self, reason: LossReason) {
        self.has_ended.store(true, Ordering::Release);
        let has_own_ttl = self.leases().has_own_end(self.lease);
        self.loss.tell(match reason {
            // The cluster has one word for both.
            LossReason::HoldTtl if !has_own_ttl => LossReason::SessionExpired,
            reason => reason,
        });
    }

    /// It is trusted no longer, but the cluster may still have it: it is to be released.
    pub(crate) fn lose(&self, reason: LossReason) {
        self.loss.tell(reason);
    }

    /// The hold has another mode, and perhaps another token.
    pub(crate) fn convert(&self, grant: &Grant) {
        let (mode, fence) = (grant.mode(), grant.fence.clone());
        *self.held_as() = HeldAs { mode, token: grant.token, fence };
    }

    /// While it may be somebody else's already, it gives no token.
    pub(crate) fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Release);
    }

    /// Whether the cluster itself said that the hold ended, so that there is nothing to release.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    pub(crate) fn loss_or_closed(&self) -> LossReason {
        self.loss.reason().unwrap_or(LossReason::SessionClosed)
    }

    pub(crate) fn loss(&self) -> watch::Receiver<Option<LossReason>> {
        self.loss.subscribe()
    }

    pub(crate) fn token(&self) -> u64 {
        self.held_as().token
    }

    pub(crate) fn fence(&self) -> String {
        self.held_as().fence.clone()
    }

    pub(crate) fn mode(&self) -> Mode {
        self.held_as().mode
    }

    /// Without its request id.
    pub(crate) fn release_request(&self) -> ReleaseRequest {
        ReleaseRequest {
            name: self.name.clone(),
            token: self.token(),
            acquire_request_id: self.key.acquire,
            tier: self.tier().to_wire().into(),
            ..Default::default()
        }
    }

    /// Where the cluster keeps it.
    pub(crate) fn tier(&self) -> Tier {
        Tier::of(self.guarantee)
    }

    pub(crate) fn check(&self) -> Result<(), Lost> {
        let certain = self.valid_until().is_some_and(|end| clock::now() < end);
        if !certain {
            self.loss.tell(self.ends_by());
        }
        match self.loss.reason() {
            Some(reason) => Err(Lost { reason }),
            None if self.is_leaving.load(Ordering::Acquire) => {
                Err(Lost { reason: LossReason::Transferred })
            }
            None => Ok(()),
        }
    }

    /// What ends it if nothing more is heard.
    pub(crate) fn ends_by(&self) -> LossReason {
        let own = self.leases().ends_before_session(self.lease);
        if own { LossReason::OwnTimeOver } else { LossReason::Expired }
    }

    pub(crate) fn valid_until(&self) -> Option<LocalTime> {
        self.leases().valid_until(self.lease)
    }

    pub(crate) fn at_risk_from(&self) -> Option<LocalTime> {
        self.leases().at_risk_from(self.lease)
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_as(&self) -> MutexGuard<'_, HeldAs> {
        self.held_as.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
