//! Held locks.

use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::error::{LossReason, Lost, Since};
use holdfast_client_core::hold::ReleaseOutcome;
use holdfast_client_core::lease::LocalTime;
use holdfast_proto::{Guarantee, PublicSessionId};

use super::block_on::Background;
use crate::efficiency::ServedBy;
use crate::error::{ConvertError, ProclaimError, ReleaseError, RenewError, TransferError};

/// A held lock; see [`crate::Guard`]. Dropping it hands the release to the thread in the background.
#[derive(Debug)]
pub struct Guard {
    // Dropped before the background that does the work of releasing.
    guard: crate::Guard,
    background: Arc<Background>,
}

/// Several locks that are held together; see [`crate::GuardAll`].
#[derive(Debug)]
pub struct GuardAll {
    guards: crate::GuardAll,
    background: Arc<Background>,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard, background: Arc<Background>) -> Guard {
        Guard { guard, background }
    }

    /// As [`crate::Guard::release`].
    pub fn release(self) -> Result<ReleaseOutcome, ReleaseError> {
        self.background.block_on(self.guard.release())
    }

    /// As [`crate::Guard::renew`].
    pub fn renew(&self, ttl: Option<Duration>) -> Result<(), RenewError> {
        self.background.block_on(self.guard.renew(ttl))
    }

    /// As [`crate::Guard::convert_to_shared`].
    pub fn convert_to_shared(&mut self) -> Result<(), ConvertError> {
        self.background.block_on(self.guard.convert_to_shared())
    }

    /// As [`crate::Guard::convert_to_exclusive`].
    pub fn convert_to_exclusive(&mut self, wait: Duration) -> Result<(), ConvertError> {
        self.background.block_on(self.guard.convert_to_exclusive(wait))
    }

    /// As [`crate::Guard::proclaim`].
    pub fn proclaim(&self, metadata: impl Into<Vec<u8>>) -> Result<(), ProclaimError> {
        self.background.block_on(self.guard.proclaim(metadata))
    }

    /// As [`crate::Guard::transfer`].
    pub fn transfer(&mut self, to: PublicSessionId) -> Result<u64, TransferError> {
        self.background.block_on(self.guard.transfer(to))
    }

    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// As [`crate::Guard::token`].
    pub fn token(&self) -> Result<u64, Lost> {
        self.guard.token()
    }

    /// As [`crate::Guard::fence`].
    pub fn fence(&self) -> Result<String, Lost> {
        self.guard.fence()
    }

    /// As [`crate::Guard::guarantee`].
    pub fn guarantee(&self) -> Option<Guarantee> {
        self.guard.guarantee()
    }

    /// As [`crate::Guard::served_by`].
    pub fn served_by(&self) -> ServedBy {
        self.guard.served_by()
    }

    /// As [`crate::Guard::since`].
    pub fn since(&self) -> Option<Since> {
        self.guard.since()
    }

    /// As [`crate::Guard::valid_until`].
    pub fn valid_until(&self) -> LocalTime {
        self.guard.valid_until()
    }

    /// As [`crate::Guard::valid_for`].
    pub fn valid_for(&self) -> Duration {
        self.guard.valid_for()
    }

    /// As [`crate::Guard::is_valid_for`].
    pub fn is_valid_for(&self, span: Duration) -> bool {
        self.guard.is_valid_for(span)
    }

    /// Blocks until the lock is lost, or for so long at most: for a thread that watches over it.
    pub fn wait_for_loss(&self, longest: Duration) -> Option<LossReason> {
        self.background
            .block_on(async { tokio::time::timeout(longest, self.guard.lost()).await.ok() })
    }

    /// Runs a future while the lock is held; on loss it is dropped. See [`crate::Guard::run_while_held`].
    pub fn run_while_held<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        self.background.block_on(self.guard.run_while_held(work))
    }
}

impl GuardAll {
    pub(super) fn new(guards: crate::GuardAll, background: Arc<Background>) -> GuardAll {
        GuardAll { guards, background }
    }

    /// As [`crate::GuardAll::release`].
    pub fn release(self) -> Result<Vec<(String, ReleaseOutcome)>, ReleaseError> {
        self.background.block_on(self.guards.release())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.guards.names()
    }

    /// As [`crate::GuardAll::tokens`].
    pub fn tokens(&self) -> Result<Vec<u64>, Lost> {
        self.guards.tokens()
    }

    /// As [`crate::GuardAll::fences`].
    pub fn fences(&self) -> Result<Vec<String>, Lost> {
        self.guards.fences()
    }

    /// As [`crate::GuardAll::is_valid_for`].
    pub fn is_valid_for(&self, span: Duration) -> bool {
        self.guards.is_valid_for(span)
    }
}
