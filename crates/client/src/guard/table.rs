//! A lock that is held in the cluster, by a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_proto::PublicSessionId;
use holdfast_proto::v1::Mode;
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};
use tracing::Instrument;

use super::ReleaseOutcome;
use crate::asking::AbandonOnDrop;
use crate::error::{
    ConvertError, Lost, ProclaimError, ReleaseError, RenewError, TransferError, Unavailable,
};
use crate::hold::Hold;
use crate::limits::check_metadata;
use crate::session::{
    Command, ConvertCall, Handle, ReleaseReply, Ticket, Unanswered, reply_until, whole_ms,
};
use crate::terms::Policy;

/// Why a command about a hold has no answer.
enum NoAnswer {
    Lost(Lost),
    Unavailable(Unavailable),
}

/// Dropping it hands the release to the session's task.
#[derive(Debug)]
pub(crate) struct TableGuard {
    pub(super) hold: Arc<Hold>,
    session: Handle,
    released: bool,
}

impl TableGuard {
    pub(super) fn new(hold: Arc<Hold>, session: Handle) -> TableGuard {
        TableGuard { hold, session, released: false }
    }

    /// The release is on its way before the future is first polled.
    pub(super) fn start_release(
        mut self,
    ) -> impl Future<Output = Result<ReleaseOutcome, ReleaseError>> {
        self.released = true;
        let span = self.span("release");
        let is_reachable = self.session.check_circuit().is_ok();
        let (reply, answer) = reply_until(self.session.patience_until(Duration::ZERO));
        self.send_release(is_reachable.then_some(reply));
        let outcome = async move {
            // Nobody has to wait for what the session goes on trying.
            let answered = match is_reachable {
                true => answer.answer().await,
                false => Err(Unanswered::OutOfPatience),
            };
            match answered {
                Ok(result) => result.map_err(ReleaseError::Rejected),
                // The end of the session freed the lock.
                Err(Unanswered::Closed) => Ok(ReleaseOutcome::Expired),
                Err(Unanswered::OutOfPatience) => {
                    Err(ReleaseError::Unavailable(self.session.unavailable(true)))
                }
            }
        };
        outcome.instrument(span)
    }

    fn span(&self, operation: &str) -> tracing::Span {
        // What is said of it is looked up only if somebody looks at spans.
        tracing::info_span!("hold", operation, lock = &*self.hold.name, token = self.hold.token())
    }

    fn send_release(&self, reply: Option<ReleaseReply>) {
        self.session.send(Command::Release { hold: Arc::clone(&self.hold), reply });
    }

    pub(super) async fn renew(&self, ttl: Option<Duration>) -> Result<(), RenewError> {
        self.hold.check()?;
        let answered = self.answered(|hold, reply| Command::Renew { hold, ttl, reply });
        match answered.instrument(self.span("renew")).await {
            Ok(result) => result,
            Err(NoAnswer::Lost(lost)) => Err(lost.into()),
            Err(NoAnswer::Unavailable(unavailable)) => Err(RenewError::Unavailable(unavailable)),
        }
    }

    pub(super) async fn convert(&mut self, mode: Mode, wait: Duration) -> Result<(), ConvertError> {
        self.hold.check()?;
        let patience_until = self.session.patience_until(wait);
        let place = self.session.admit_wait(patience_until).await;
        let _place = place.map_err(ConvertError::Unavailable)?;
        let (reply, answer) = oneshot::channel();
        let ticket = Ticket::default();
        let abandon = AbandonOnDrop::new(&self.session, ticket.clone());
        self.session.send(Command::Convert(ConvertCall {
            hold: Arc::clone(&self.hold),
            mode,
            wait_ms: whole_ms(wait),
            policy: Policy::Detect,
            ticket: ticket.clone(),
            reply,
            is_abandoned: false,
        }));
        match timeout_at(patience_until.into(), answer).await {
            Ok(answer) => {
                abandon.not_needed();
                answer.unwrap_or_else(|_| Err(Lost { reason: self.hold.loss_or_closed() }.into()))
            }
            Err(_) => Err(ConvertError::Unavailable(self.session.unavailable(ticket.was_sent()))),
        }
    }

    pub(super) async fn proclaim(&self, metadata: Vec<u8>) -> Result<(), ProclaimError> {
        self.hold.check()?;
        check_metadata(&metadata).map_err(ProclaimError::Rejected)?;
        let answered = self.answered(|hold, reply| Command::Proclaim { hold, metadata, reply });
        match answered.instrument(self.span("proclaim")).await {
            Ok(result) => result,
            Err(NoAnswer::Lost(lost)) => Err(lost.into()),
            Err(NoAnswer::Unavailable(unavailable)) => Err(ProclaimError::Unavailable(unavailable)),
        }
    }

    pub(super) async fn transfer(&mut self, to: PublicSessionId) -> Result<u64, TransferError> {
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
}

impl Drop for TableGuard {
    fn drop(&mut self) {
        if !self.released {
            self.send_release(None);
        }
    }
}
