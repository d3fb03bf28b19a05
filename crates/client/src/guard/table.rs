//! A lock that is held in the cluster, by a session.

use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::error::RequestError;
use holdfast_client_core::hold::{Hold, ReleaseOutcome};
use holdfast_client_core::session::{Outcome, Request, Success};
use holdfast_proto::PublicSessionId;
use holdfast_proto::v1::{self, Mode};
use tracing::Instrument;

use crate::error::{ConvertError, ProclaimError, ReleaseError, RenewError, TransferError};
use crate::limits::check_metadata;
use crate::session::Handle;
use holdfast_lease_clock as clock;

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
        let answer = self.session.start_release(Request::Release { hold: Arc::clone(&self.hold) });
        let outcome = async move {
            // The task must not end before the answer: it does when the last handle is gone.
            let _session = &self.session;
            match answer.await {
                Ok(Success::Released(outcome)) => Ok(outcome),
                Err(RequestError::Rejected(rejection)) => Err(ReleaseError::Rejected(rejection)),
                Err(RequestError::Unavailable(unavailable)) => {
                    Err(ReleaseError::Unavailable(unavailable))
                }
                // The end of the session freed the lock.
                Ok(_) | Err(_) => Ok(ReleaseOutcome::Expired),
            }
        };
        outcome.instrument(span)
    }

    fn span(&self, operation: &str) -> tracing::Span {
        // The fields are looked up only if spans are collected.
        let (lock, token) = (&*self.hold.name, self.hold.last_token());
        tracing::info_span!("hold", operation, lock, token)
    }

    pub(super) async fn renew(&self, ttl: Option<Duration>) -> Result<(), RenewError> {
        self.hold.check(clock::now())?;
        self.ask("renew", |hold| Request::Renew { hold, ttl }).await?;
        Ok(())
    }

    pub(super) async fn convert(&mut self, mode: Mode, wait: Duration) -> Result<(), ConvertError> {
        self.hold.check(clock::now())?;
        let (hold, policy) = (Arc::clone(&self.hold), v1::Policy::Detect);
        let request = Request::Convert { hold, mode, wait, policy };
        self.session.ask_and_wait(request, wait, None).await?;
        Ok(())
    }

    pub(super) async fn proclaim(&self, metadata: Vec<u8>) -> Result<(), ProclaimError> {
        self.hold.check(clock::now())?;
        check_metadata(&metadata).map_err(ProclaimError::Rejected)?;
        self.ask("proclaim", |hold| Request::Proclaim { hold, metadata }).await?;
        Ok(())
    }

    pub(super) async fn transfer(&mut self, to: PublicSessionId) -> Result<u64, TransferError> {
        self.hold.check(clock::now())?;
        match self.ask("transfer", |hold| Request::Transfer { hold, to: to.to_string() }).await? {
            Success::Transferred(token) => Ok(token),
            _ => Err(RequestError::Closed.into()),
        }
    }

    async fn ask(&self, operation: &str, request: impl FnOnce(Arc<Hold>) -> Request) -> Outcome {
        let request = request(Arc::clone(&self.hold));
        self.session.ask(request).instrument(self.span(operation)).await
    }
}

impl Drop for TableGuard {
    fn drop(&mut self) {
        if !self.released {
            self.session.release(Request::Release { hold: Arc::clone(&self.hold) });
        }
    }
}
