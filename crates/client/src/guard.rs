//! A held lock.
//!
//! The guard never caches "I am valid": each question reads the clock and the lease. Once a hold is
//! lost it stays lost, even if a late heartbeat would show that it could have gone on, because the
//! caller may have acted on the loss.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_proto::v1;
use holdfast_proto::v1::Grant;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::clock;
use crate::error::{LossReason, Lost, ReleaseError, RenewError};
use crate::lease::{HoldId, Leases, LocalTime};
use crate::session::{Command, Handle};

/// The longest sleep of a task that waits for the end of a lease. The runtime's timers stand still
/// while the machine sleeps, so a pause is noticed this long after waking up at the latest.
const PAUSE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    Released,
    /// The lock was held under this token by another session, or the token was never this session's.
    NotOwner,
    AlreadyReleased,
    /// The hold had ended on its own before.
    Expired,
}

impl ReleaseOutcome {
    /// `None` for an outcome that this version does not know.
    pub(crate) fn from_wire(outcome: v1::ReleaseOutcome) -> Option<ReleaseOutcome> {
        match outcome {
            v1::ReleaseOutcome::Unspecified => None,
            v1::ReleaseOutcome::Released => Some(ReleaseOutcome::Released),
            v1::ReleaseOutcome::NotOwner => Some(ReleaseOutcome::NotOwner),
            v1::ReleaseOutcome::AlreadyReleased => Some(ReleaseOutcome::AlreadyReleased),
            v1::ReleaseOutcome::Expired => Some(ReleaseOutcome::Expired),
        }
    }
}

/// A held lock. Dropping it hands the release to the session's task; `release().await` also tells
/// what came of it.
#[derive(Debug)]
pub struct Guard {
    hold: Arc<Hold>,
    session: Handle,
    released: bool,
}

/// What the guard and the session's task both know about one hold.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) id: HoldId,
    /// Which of the client's sessions it belongs to; a lost session is replaced by the next one.
    pub(crate) session_number: u64,
    pub(crate) name: String,
    pub(crate) token: u64,
    fence: String,
    leases: Arc<Mutex<Leases>>,
    loss: watch::Sender<Option<LossReason>>,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, session: Handle) -> Guard {
        Guard { hold, session, released: false }
    }

    /// Returns the outcome once the release is committed. If no answer comes in time the session
    /// goes on trying.
    pub async fn release(mut self) -> Result<ReleaseOutcome, ReleaseError> {
        self.released = true;
        let (reply, answer) = oneshot::channel();
        let hold = Arc::clone(&self.hold);
        self.session.send(Command::Release { hold, reply: Some(reply) });
        match timeout(self.session.request_timeout(), answer).await {
            Ok(Ok(result)) => result.map_err(ReleaseError::Rejected),
            // The session is closed, and its end freed the lock.
            Ok(Err(_)) => Ok(ReleaseOutcome::Expired),
            Err(_) => Err(ReleaseError::Unavailable(self.session.unavailable(true))),
        }
    }

    /// Starts the hold's own TTL anew, with another length if one is given. A hold without its own
    /// TTL needs none: the session's heartbeats keep it.
    pub async fn renew(&self, ttl: Option<Duration>) -> Result<(), RenewError> {
        self.hold.check()?;
        let (reply, answer) = oneshot::channel();
        let hold = Arc::clone(&self.hold);
        self.session.send(Command::Renew { hold, ttl, reply });
        match timeout(self.session.request_timeout(), answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Lost { reason: self.hold.loss_or_closed() }.into()),
            Err(_) => Err(RenewError::Unavailable(self.session.unavailable(true))),
        }
    }

    pub fn name(&self) -> &str {
        &self.hold.name
    }

    /// The fencing token, or the news that the lock may have ended.
    pub fn token(&self) -> Result<u64, Lost> {
        self.hold.check().map(|()| self.hold.token)
    }

    /// The token in full form, which fence checkers take: `hf1.L.<name hash>.<number>`.
    pub fn fence(&self) -> Result<String, Lost> {
        self.hold.check().map(|()| self.hold.fence.clone())
    }

    /// The local time until which the lock is certainly held, as far as is known now. It moves on
    /// with every answered request.
    pub fn valid_until(&self) -> LocalTime {
        self.hold.valid_until().unwrap_or(LocalTime(Duration::ZERO))
    }

    /// How much is left until [`Guard::valid_until`]; zero once the lock is lost.
    pub fn valid_for(&self) -> Duration {
        match self.hold.check() {
            Ok(()) => self.valid_until().saturating_since(clock::now()),
            Err(_) => Duration::ZERO,
        }
    }

    /// Returns when the lock is lost, and only then.
    pub async fn lost(&self) -> LossReason {
        let mut loss = self.hold.loss.subscribe();
        loop {
            if let Err(lost) = self.hold.check() {
                return lost.reason;
            }
            let sleep = self.valid_for().min(PAUSE_CHECK_INTERVAL);
            // Either a loss was told, or the sleep is over: both are looked at above.
            let _ = timeout(sleep, loss.changed()).await;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            self.session.send(Command::Release { hold: Arc::clone(&self.hold), reply: None });
        }
    }
}

impl Hold {
    pub(crate) fn new(
        id: HoldId,
        session_number: u64,
        grant: Grant,
        leases: Arc<Mutex<Leases>>,
    ) -> Hold {
        Hold {
            id,
            session_number,
            name: grant.name,
            token: grant.token,
            fence: grant.fence,
            leases,
            loss: watch::Sender::new(None),
        }
    }

    /// The first reason stands.
    pub(crate) fn lose(&self, reason: LossReason) {
        self.loss.send_if_modified(|loss| {
            let is_news = loss.is_none();
            loss.get_or_insert(reason);
            is_news
        });
    }

    /// Whether the cluster itself said that the hold ended, so that there is nothing to release.
    pub(crate) fn is_known_to_have_ended(&self) -> bool {
        let by_local_clock = [LossReason::Expired, LossReason::OwnTimeOver];
        self.loss.borrow().is_some_and(|reason| !by_local_clock.contains(&reason))
    }

    pub(crate) fn loss_or_closed(&self) -> LossReason {
        self.loss.borrow().unwrap_or(LossReason::SessionClosed)
    }

    fn check(&self) -> Result<(), Lost> {
        let certain = self.valid_until().is_some_and(|end| clock::now() < end);
        if !certain {
            let own = self.leases().ends_before_session(self.id);
            self.lose(if own { LossReason::OwnTimeOver } else { LossReason::Expired });
        }
        match *self.loss.borrow() {
            Some(reason) => Err(Lost { reason }),
            None => Ok(()),
        }
    }

    fn valid_until(&self) -> Option<LocalTime> {
        self.leases().valid_until(self.id)
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
