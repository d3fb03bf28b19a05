//! A held lock.
//!
//! The guard never caches "I am valid": each question reads the clock and the lease. Once a hold is
//! lost it stays lost, even if a late heartbeat would show that it could have gone on, because the
//! caller may have acted on the loss.

mod table;

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::error::{LossReason, Lost, Since};
use holdfast_client_core::hold::{Hold, ReleaseOutcome};
use holdfast_client_core::lease::LocalTime;
use holdfast_client_core::loss::LossSignal;
use holdfast_proto::v1::Mode;
use holdfast_proto::{Guarantee, PublicSessionId};
#[cfg(feature = "redis")]
use holdfast_redis_locks::HeldLock;

use crate::efficiency::ServedBy;
use crate::error::{
    ConvertError, NotInThisTier, ProclaimError, ReleaseError, RenewError, TransferError,
};
use crate::lease_watch::{self, Held};
use crate::session::Handle;
use holdfast_lease_clock as clock;
use table::TableGuard;

/// A held lock. Dropping it hands the release to a task; `release().await` also returns the outcome.
///
/// With [`WhenDown::GoWithout`](crate::WhenDown::GoWithout) a guard may hold nothing: see [`Guard::guarantee`].
#[derive(Debug)]
pub struct Guard {
    kind: Kind,
}

/// Where the lock is held.
#[derive(Debug)]
enum Kind {
    /// In the cluster, by a session.
    Table(TableGuard),
    /// In Redis.
    #[cfg(feature = "redis")]
    External { held: HeldLock, served_by: ServedBy },
    /// No lock is held: the efficiency tier was down, and the program chose
    /// [`WhenDown::GoWithout`](crate::WhenDown::GoWithout).
    Without { name: String },
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, session: Handle) -> Guard {
        Guard { kind: Kind::Table(TableGuard::new(hold, session)) }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn in_external_store(held: HeldLock, served_by: ServedBy) -> Guard {
        Guard { kind: Kind::External { held, served_by } }
    }

    /// A guard that holds nothing, for a program that chose to work without a lock when the tier is down.
    pub(crate) fn without(name: String) -> Guard {
        Guard { kind: Kind::Without { name } }
    }

    /// Returns the outcome once the release is committed. If no answer comes in time, the
    /// client keeps trying in the background.
    pub async fn release(self) -> Result<ReleaseOutcome, ReleaseError> {
        match self.kind {
            Kind::Table(guard) => guard.start_release().await,
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => Ok(held.start_release().await?),
            Kind::Without { .. } => Ok(ReleaseOutcome::NothingHeld),
        }
    }

    /// The release is on its way before the future is first polled.
    pub(crate) fn start_release(
        self,
    ) -> impl Future<Output = Result<ReleaseOutcome, ReleaseError>> {
        let outcome: Pin<Box<dyn Future<Output = _> + Send>> = match self.kind {
            Kind::Table(guard) => Box::pin(guard.start_release()),
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => {
                let released = held.start_release();
                Box::pin(async { Ok(released.await?) })
            }
            Kind::Without { .. } => Box::pin(ready(Ok(ReleaseOutcome::NothingHeld))),
        };
        outcome
    }

    /// Restarts the hold's own TTL (`.ttl(d)` on the lock), with another length if one is given. A
    /// hold without a TTL of its own needs no renewal: the library's heartbeats keep it.
    pub async fn renew(&self, ttl: Option<Duration>) -> Result<(), RenewError> {
        match &self.kind {
            Kind::Table(guard) => guard.renew(ttl).await,
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => Ok(held.renew(ttl).await?),
            Kind::Without { .. } => Ok(()),
        }
    }

    /// Turns the exclusive hold into a shared one, at once and under the same token. Readers at the
    /// head of the queue get the lock, too.
    pub async fn convert_to_shared(&mut self) -> Result<(), ConvertError> {
        self.in_cluster("a conversion")?.convert(Mode::Shared, Duration::ZERO).await
    }

    /// Turns the shared hold into an exclusive one when the other readers are gone, under a new
    /// token. The lock is held all the time. If two readers convert, each would wait for the other
    /// to release. So the second one gets `Deadlock`, and has to release its lock.
    ///
    /// Dropping the future gives up the place in the queue. If the conversion was done by then it stays
    /// done, and [`Guard::token`] gives the new token.
    pub async fn convert_to_exclusive(&mut self, wait: Duration) -> Result<(), ConvertError> {
        self.in_cluster("a conversion")?.convert(Mode::Exclusive, wait).await
    }

    /// Replaces the hold's metadata, which `holdfast status` and the dashboard show.
    pub async fn proclaim(&self, metadata: impl Into<Vec<u8>>) -> Result<(), ProclaimError> {
        match &self.kind {
            Kind::Table(guard) => guard.proclaim(metadata.into()).await,
            _ => Err(self.not_in_this_tier("metadata").into()),
        }
    }

    /// Hands an exclusive lock to a session that waits for this lock only, not as part of an acquire-all. That session
    /// jumps the queue; the lock is free at no moment in between. Returns the token under which the other holds it.
    ///
    /// Once the request is on its way this guard gives no token, unless the transfer is refused.
    pub async fn transfer(&mut self, to: PublicSessionId) -> Result<u64, TransferError> {
        self.in_cluster("a transfer")?.transfer(to).await
    }

    fn in_cluster(&mut self, what: &'static str) -> Result<&mut TableGuard, NotInThisTier> {
        let refused = self.not_in_this_tier(what);
        match &mut self.kind {
            Kind::Table(guard) => Ok(guard),
            _ => Err(refused),
        }
    }

    fn not_in_this_tier(&self, what: &'static str) -> NotInThisTier {
        NotInThisTier { what, served_by: self.served_by() }
    }

    pub fn name(&self) -> &str {
        match &self.kind {
            Kind::Table(guard) => &guard.hold.name,
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => &held.hold.name,
            Kind::Without { name } => name,
        }
    }

    /// The fencing token; an error if the lock may have ended.
    pub fn token(&self) -> Result<u64, Lost> {
        match &self.kind {
            Kind::Table(guard) => guard.hold.token(clock::now()),
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => held.hold.check().map(|()| held.hold.token),
            Kind::Without { .. } => Err(Lost { reason: LossReason::NotLocked }),
        }
    }

    /// How far the lock can be trusted: what it was granted with, which follows from the
    /// [`Tier`](crate::Tier) that was asked for. `None` if the efficiency tier was down and nothing is held:
    /// see [`WhenDown::GoWithout`](crate::WhenDown::GoWithout).
    pub fn guarantee(&self) -> Option<Guarantee> {
        match &self.kind {
            Kind::Table(guard) => Some(guard.hold.guarantee),
            #[cfg(feature = "redis")]
            Kind::External { .. } => Some(Guarantee::BestEffort),
            Kind::Without { .. } => None,
        }
    }

    /// Who granted the lock.
    pub fn served_by(&self) -> ServedBy {
        match &self.kind {
            Kind::Table(guard) if guard.hold.guarantee == Guarantee::BestEffort => {
                ServedBy::Embedded
            }
            Kind::Table(_) => ServedBy::LockTable,
            #[cfg(feature = "redis")]
            Kind::External { served_by, .. } => *served_by,
            Kind::Without { .. } => ServedBy::NoStore,
        }
    }

    /// The token as text, which fence checkers take: `hf1.L.<name hash>.<number>`. `L` stands for
    /// [linearizable](Guarantee::Linearizable), `B` for [best effort](Guarantee::BestEffort). Empty for a permit, which is
    /// not fenceable; a checker refuses an empty fence.
    pub fn fence(&self) -> Result<String, Lost> {
        match &self.kind {
            Kind::Table(guard) => guard.hold.fence(clock::now()),
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => held.hold.check().map(|()| held.hold.fence()),
            Kind::Without { .. } => Err(Lost { reason: LossReason::NotLocked }),
        }
    }

    /// Whether no other client can hold the lock at the same time.
    pub fn is_exclusive(&self) -> bool {
        match &self.kind {
            Kind::Table(guard) => guard.hold.mode() == Mode::Exclusive,
            #[cfg(feature = "redis")]
            Kind::External { .. } => true,
            Kind::Without { .. } => false,
        }
    }

    /// The start of the transaction, if the lock was requested with one. Pass it to the next request of the same
    /// transaction, so that the transaction keeps its age: see [`Since::NOW`], `wait_die` and `wound_wait`.
    pub fn since(&self) -> Option<Since> {
        match &self.kind {
            Kind::Table(guard) => guard.hold.since,
            _ => None,
        }
    }

    /// The local time until which the lock is certainly held, as far as is known now. It moves on with every answered
    /// request. A guard that holds nothing (see [`Guard::guarantee`]) never ends: the program chose to work without a
    /// lock, so this is the end of time, and [`Guard::is_valid_for`] is true.
    pub fn valid_until(&self) -> LocalTime {
        match &self.kind {
            Kind::Table(guard) => guard.hold.valid_until().unwrap_or(LocalTime(Duration::ZERO)),
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => held.hold.valid_until(),
            Kind::Without { .. } => LocalTime(Duration::MAX),
        }
    }

    /// How much is left until [`Guard::valid_until`]; zero once the lock is lost.
    pub fn valid_for(&self) -> Duration {
        lease_watch::valid_for(self)
    }

    /// Whether the lock is certainly held for so long from now on. Ask before work that must not begin unless there is
    /// time to finish it.
    pub fn is_valid_for(&self, span: Duration) -> bool {
        self.valid_for() >= span
    }

    /// Returns when only a third of the lease is left, or the lock is lost: time to bring work to an end. A third is left
    /// if heartbeats go unanswered, or if the hold has its own TTL and was not renewed. If an answer comes in time the
    /// lock is safe, and this can be awaited again.
    pub async fn at_risk(&self) {
        lease_watch::at_risk(self).await;
    }

    /// What ends the lock at [`Guard::valid_until`], if the cluster does not answer before: the
    /// session's TTL, or a limit of the hold itself (its own TTL or `max_hold`).
    pub fn ends_by(&self) -> LossReason {
        match &self.kind {
            Kind::Table(guard) => guard.hold.ends_by(),
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => held.hold.ends_by(),
            Kind::Without { .. } => LossReason::NotLocked,
        }
    }

    /// Whether the cluster has told the end of the hold.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(&self.kind, Kind::Table(guard) if guard.hold.has_ended())
    }

    /// Returns when the lock is lost, and only then.
    pub async fn lost(&self) -> LossReason {
        lease_watch::lost(self).await
    }

    /// Does the work while the lock is held: on loss the work is dropped, at the point where it awaits.
    pub async fn run_while_held<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        lease_watch::run_while_held(self, work).await
    }
}

impl Held for Guard {
    fn check(&self) -> Result<(), Lost> {
        match &self.kind {
            Kind::Table(guard) => guard.hold.check(clock::now()),
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => held.hold.check(),
            Kind::Without { .. } => Ok(()),
        }
    }

    fn valid_until(&self) -> LocalTime {
        Guard::valid_until(self)
    }

    fn at_risk_from(&self) -> LocalTime {
        match &self.kind {
            Kind::Table(guard) => guard.hold.at_risk_from().unwrap_or(LocalTime(Duration::ZERO)),
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => held.hold.at_risk_from(),
            Kind::Without { .. } => LocalTime(Duration::MAX),
        }
    }

    fn loss_signal(&self) -> Option<LossSignal> {
        match &self.kind {
            Kind::Table(guard) => Some(guard.hold.loss_signal()),
            #[cfg(feature = "redis")]
            Kind::External { held, .. } => Some(held.hold.loss_signal()),
            Kind::Without { .. } => None,
        }
    }
}
