//! The leadership of who was elected.

use holdfast_client_core::error::{LossReason, Lost};
use holdfast_client_core::hold::ReleaseOutcome;
use holdfast_proto::PublicSessionId;

use crate::error::{ProclaimError, ReleaseError, TransferError};
use crate::guard::Guard;

/// A leadership. Dropping it resigns.
#[derive(Debug)]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    pub(crate) fn new(guard: Guard) -> Leadership {
        Leadership { guard }
    }

    /// The fencing token of this leadership, or the news that it may have ended; see [`Guard::token`].
    pub fn epoch(&self) -> Result<u64, Lost> {
        self.guard.token()
    }

    /// The epoch in full form, which fence checkers take; see [`Guard::fence`].
    pub fn fence(&self) -> Result<String, Lost> {
        self.guard.fence()
    }

    /// Another value for observers.
    pub async fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<(), ProclaimError> {
        self.guard.proclaim(value).await
    }

    /// Hands over to a candidate, ahead of the queue, without a gap: there is a leader at every moment.
    /// Returns the epoch under which the other leads. See [`Election::candidates`](crate::Election::candidates).
    ///
    /// From the call on this leadership gives no epoch, unless the hand-over is refused.
    pub async fn hand_over(&mut self, to: PublicSessionId) -> Result<u64, TransferError> {
        self.guard.transfer(to).await
    }

    /// Steps down; the next candidate is elected.
    pub async fn resign(self) -> Result<ReleaseOutcome, ReleaseError> {
        self.guard.release().await
    }

    /// As [`Guard::lost`].
    pub async fn lost(&self) -> LossReason {
        self.guard.lost().await
    }

    /// As [`Guard::at_risk`].
    pub async fn at_risk(&self) {
        self.guard.at_risk().await;
    }

    /// As [`Guard::run_while_held`].
    pub async fn run_while_held<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        self.guard.run_while_held(work).await
    }

    /// The lock that leading means to hold: for all else that can be asked of it.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }
}
