//! A held lock.
//!
//! The guard never caches "I am valid": each question reads the clock and the lease. Once a hold is
//! lost it stays lost, even if a late heartbeat would show that it could have gone on, because the
//! caller may have acted on the loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_proto::v1;
use holdfast_proto::v1::Mode;
use holdfast_proto::{Guarantee, PublicSessionId};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::Instrument;

use crate::asking::AbandonOnDrop;
use crate::error::{
    ConvertError, LossReason, Lost, ProclaimError, ReleaseError, RenewError, Since, TransferError,
    Unavailable,
};
use crate::hold::Hold;
use crate::lease::LocalTime;
use crate::limits::check_metadata;
use crate::session::{Command, ConvertCall, Handle, ReleaseReply, whole_ms};
use crate::terms::Policy;
use crate::vigil::{self, Held};

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

/// Why a command about a hold has no answer.
enum NoAnswer {
    Lost(Lost),
    Unavailable(Unavailable),
}

/// A held lock. Dropping it hands the release to the session's task; `release().await` also tells
/// what came of it.
#[derive(Debug)]
pub struct Guard {
    hold: Arc<Hold>,
    session: Handle,
    released: bool,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, session: Handle) -> Guard {
        Guard { hold, session, released: false }
    }

    #[cfg(test)]
    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Returns the outcome once the release is committed. If no answer comes in time the session
    /// goes on trying.
    pub async fn release(self) -> Result<ReleaseOutcome, ReleaseError> {
        self.start_release().await
    }

    /// The release is on its way before the future is first polled.
    pub(crate) fn start_release(
        mut self,
    ) -> impl Future<Output = Result<ReleaseOutcome, ReleaseError>> {
        self.released = true;
        let span = self.span("release");
        let (reply, answer) = oneshot::channel();
        self.send_release(Some(reply));
        let outcome = async move {
            // Nobody has to wait for what the session goes on trying.
            let patience = match self.session.check_circuit() {
                Ok(()) => self.session.request_timeout(),
                Err(_) => Duration::ZERO,
            };
            match timeout(patience, answer).await {
                Ok(Ok(result)) => result.map_err(ReleaseError::Rejected),
                // The session is closed, and its end freed the lock.
                Ok(Err(_)) => Ok(ReleaseOutcome::Expired),
                Err(_) => Err(ReleaseError::Unavailable(self.session.unavailable(true))),
            }
        };
        outcome.instrument(span)
    }

    fn span(&self, operation: &str) -> tracing::Span {
        let (lock, token) = (&self.hold.name, self.hold.token());
        tracing::info_span!("hold", operation, lock, token)
    }

    fn send_release(&self, reply: Option<ReleaseReply>) {
        self.session.send(Command::Release { hold: Arc::clone(&self.hold), reply });
    }

    /// Starts the hold's own TTL anew, with another length if one is given. A hold without its own
    /// TTL needs none: the session's heartbeats keep it.
    pub async fn renew(&self, ttl: Option<Duration>) -> Result<(), RenewError> {
        self.hold.check()?;
        let answered = self.answered(|hold, reply| Command::Renew { hold, ttl, reply });
        match answered.instrument(self.span("renew")).await {
            Ok(result) => result,
            Err(NoAnswer::Lost(lost)) => Err(lost.into()),
            Err(NoAnswer::Unavailable(unavailable)) => Err(RenewError::Unavailable(unavailable)),
        }
    }

    /// From exclusive to shared, at once and under the same token: the readers at the head of the queue
    /// join in.
    pub async fn convert_to_shared(&mut self) -> Result<(), ConvertError> {
        self.convert(Mode::Shared, Duration::ZERO, Policy::Detect).await
    }

    /// From shared to exclusive when the other readers are gone, under a new token; the lock is held
    /// all the time. Of two readers that want it the second is told `Deadlock`, since neither could
    /// ever be alone: it has to release.
    ///
    /// Dropping the future gives up the place in the queue. If the conversion was done by then it stays
    /// done, and [`Guard::token`] gives the new token.
    pub async fn convert_to_exclusive(&mut self, wait: Duration) -> Result<(), ConvertError> {
        self.convert(Mode::Exclusive, wait, Policy::Detect).await
    }

    async fn convert(
        &mut self,
        mode: Mode,
        wait: Duration,
        policy: Policy,
    ) -> Result<(), ConvertError> {
        self.hold.check()?;
        let _place = self.session.admit_wait().await.map_err(ConvertError::Unavailable)?;
        let (reply, answer) = oneshot::channel();
        let was_sent = Arc::new(AtomicBool::new(false));
        let abandon = AbandonOnDrop::new(&self.session);
        self.session.send(Command::Convert(ConvertCall {
            hold: Arc::clone(&self.hold),
            mode,
            wait_ms: whole_ms(wait),
            policy,
            ticket: abandon.ticket,
            reply,
            was_sent: Arc::clone(&was_sent),
            is_abandoned: false,
        }));
        match timeout(wait.saturating_add(self.session.request_timeout()), answer).await {
            Ok(answer) => {
                abandon.not_needed();
                answer.unwrap_or_else(|_| Err(Lost { reason: self.hold.loss_or_closed() }.into()))
            }
            Err(_) => {
                let may_have_happened = was_sent.load(Ordering::Relaxed);
                Err(ConvertError::Unavailable(self.session.unavailable(may_have_happened)))
            }
        }
    }

    /// Other metadata for the hold, for people who look at the lock.
    pub async fn proclaim(&self, metadata: impl Into<Vec<u8>>) -> Result<(), ProclaimError> {
        self.hold.check()?;
        let metadata = metadata.into();
        check_metadata(&metadata).map_err(ProclaimError::Rejected)?;
        let answered = self.answered(|hold, reply| Command::Proclaim { hold, metadata, reply });
        match answered.instrument(self.span("proclaim")).await {
            Ok(result) => result,
            Err(NoAnswer::Lost(lost)) => Err(lost.into()),
            Err(NoAnswer::Unavailable(unavailable)) => Err(ProclaimError::Unavailable(unavailable)),
        }
    }

    /// Hands an exclusive lock to a session that waits for it alone, past all who came before; it is
    /// free at no moment in between. Returns the token under which the other holds it.
    ///
    /// Once the request is on its way this guard gives no token, unless the transfer is refused.
    pub async fn transfer(&mut self, to: PublicSessionId) -> Result<u64, TransferError> {
        self.hold.check()?;
        let answered = self.answered(|hold, reply| {
            hold.set_leaving(true);
            Command::Transfer { hold, to: to.to_string(), reply }
        });
        match answered.instrument(self.span("transfer")).await {
            Ok(result) => result,
            Err(NoAnswer::Lost(lost)) => Err(lost.into()),
            Err(NoAnswer::Unavailable(unavailable)) => Err(TransferError::Unavailable(unavailable)),
        }
    }

    /// The answer to a command about this hold.
    async fn answered<T>(
        &self,
        command: impl FnOnce(Arc<Hold>, oneshot::Sender<T>) -> Command,
    ) -> Result<T, NoAnswer> {
        let session = &self.session;
        let was_sent = AtomicBool::new(false);
        let answer = async {
            let _place = session.admit_holder().await.map_err(NoAnswer::Unavailable)?;
            let (reply, answer) = oneshot::channel();
            session.send(command(Arc::clone(&self.hold), reply));
            was_sent.store(true, Ordering::Relaxed);
            answer.await.map_err(|_| NoAnswer::Lost(Lost { reason: self.hold.loss_or_closed() }))
        };
        let answer = timeout(session.request_timeout(), answer).await;
        let was_sent = was_sent.load(Ordering::Relaxed);
        answer.unwrap_or_else(|_| Err(NoAnswer::Unavailable(session.unavailable(was_sent))))
    }

    pub fn name(&self) -> &str {
        &self.hold.name
    }

    /// The fencing token, or the news that the lock may have ended.
    pub fn token(&self) -> Result<u64, Lost> {
        self.hold.check().map(|()| self.hold.token())
    }

    /// How much the lock can be trusted: what it was granted with, which follows from the
    /// [`Tier`](crate::Tier) that was asked for.
    pub fn guarantee(&self) -> Guarantee {
        self.hold.guarantee
    }

    /// The token in full form, which fence checkers take: `hf1.L.<name hash>.<number>`, with a `B` instead of
    /// the `L` if the lock is [best effort](Guarantee::BestEffort). Empty for a permit, which is not fenceable.
    pub fn fence(&self) -> Result<String, Lost> {
        self.hold.check().map(|()| self.hold.fence())
    }

    /// Whether nobody else can hold the lock at the same time.
    pub fn is_exclusive(&self) -> bool {
        self.hold.mode() == Mode::Exclusive
    }

    /// The age to ask for the next lock of the same transaction with, if this one was asked for with an
    /// age: see [`Since::NOW`].
    pub fn since(&self) -> Option<Since> {
        self.hold.since
    }

    /// The local time until which the lock is certainly held, as far as is known now. It moves on
    /// with every answered request.
    pub fn valid_until(&self) -> LocalTime {
        self.hold.valid_until().unwrap_or(LocalTime(Duration::ZERO))
    }

    /// How much is left until [`Guard::valid_until`]; zero once the lock is lost.
    pub fn valid_for(&self) -> Duration {
        vigil::valid_for(self)
    }

    /// Whether the lock is certainly held for so long from now on: before something that must not be begun
    /// unless there is time to end it.
    pub fn is_valid_for(&self, span: Duration) -> bool {
        self.valid_for() >= span
    }

    /// Returns when a third of the time is left, because heartbeats go unanswered (or the hold ends by itself
    /// and was not renewed), or the lock is lost: time to bring work to an end. It may be saved yet; then this
    /// can be awaited anew.
    pub async fn at_risk(&self) {
        vigil::at_risk(self).await;
    }

    /// Returns when the lock is lost, and only then.
    pub async fn lost(&self) -> LossReason {
        vigil::lost(self).await
    }

    /// Does the work while the lock is held: on loss the work is dropped, at the point where it awaits.
    pub async fn run_while_held<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        vigil::run_while_held(self, work).await
    }
}

impl Held for Guard {
    fn check(&self) -> Result<(), Lost> {
        self.hold.check()
    }

    fn valid_until(&self) -> LocalTime {
        Guard::valid_until(self)
    }

    fn at_risk_from(&self) -> LocalTime {
        self.hold.at_risk_from().unwrap_or(LocalTime(Duration::ZERO))
    }

    fn loss(&self) -> Option<watch::Receiver<Option<LossReason>>> {
        Some(self.hold.loss())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            self.send_release(None);
        }
    }
}
