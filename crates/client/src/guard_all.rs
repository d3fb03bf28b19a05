//! Several locks that are held together.

use std::time::Duration;

use tokio::time::timeout;

use crate::clock;
use crate::error::{LossReason, Lost, ReleaseError, RenewError, Since};
use crate::guard::{Guard, PAUSE_CHECK_INTERVAL, ReleaseOutcome};
use crate::lease::LocalTime;

/// Several locks that were granted at one moment. They count only together: if one of them is lost, no
/// token of any is given any more. Dropping it releases all that are left.
#[derive(Debug)]
pub struct GuardAll {
    /// In the order in which they were asked for; never empty. They share the news of a loss.
    guards: Vec<Guard>,
}

impl GuardAll {
    pub(crate) fn new(guards: Vec<Guard>) -> GuardAll {
        GuardAll { guards }
    }

    /// Returns once all are given back; the first that could not be is told. The rest is released all
    /// the same.
    pub async fn release(self) -> Result<(), ReleaseError> {
        // All go out together, in one frame.
        let releases: Vec<_> = self.guards.into_iter().map(Guard::start_release).collect();
        let mut outcome = Ok(());
        for release in releases {
            outcome = outcome.and(release.await.map(|_: ReleaseOutcome| ()));
        }
        outcome
    }

    /// As [`Guard::renew`], for each of them.
    pub async fn renew(&self, ttl: Option<Duration>) -> Result<(), RenewError> {
        for guard in &self.guards {
            guard.renew(ttl).await?;
        }
        Ok(())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.guards.iter().map(Guard::name)
    }

    /// The fencing tokens, in the order in which the locks were asked for.
    pub fn tokens(&self) -> Result<Vec<u64>, Lost> {
        self.check()?;
        self.guards.iter().map(Guard::token).collect()
    }

    /// The tokens in full form, in the same order; empty for a permit, which is not fenceable.
    pub fn fences(&self) -> Result<Vec<String>, Lost> {
        self.check()?;
        self.guards.iter().map(Guard::fence).collect()
    }

    /// The fencing token of one of the locks; `None` if it is not among them.
    pub fn token(&self, name: &str) -> Result<Option<u64>, Lost> {
        self.check()?;
        self.guards.iter().find(|guard| guard.name() == name).map(Guard::token).transpose()
    }

    /// The local time until which all of them are certainly held.
    pub fn valid_until(&self) -> LocalTime {
        let ends = self.guards.iter().map(Guard::valid_until);
        ends.min().unwrap_or(LocalTime(Duration::ZERO))
    }

    /// How much is left until [`GuardAll::valid_until`]; zero once one of them is lost.
    pub fn valid_for(&self) -> Duration {
        match self.check() {
            Ok(()) => self.valid_until().saturating_since(clock::now()),
            Err(_) => Duration::ZERO,
        }
    }

    /// As [`Guard::since`].
    pub fn since(&self) -> Option<Since> {
        self.guards.first().and_then(Guard::since)
    }

    /// Returns when one of them is lost, and only then.
    pub async fn lost(&self) -> LossReason {
        let Some(first) = self.guards.first() else { return std::future::pending().await };
        let mut loss = first.hold().loss();
        loop {
            if let Err(lost) = self.check() {
                return lost.reason;
            }
            let sleep = self.valid_for().min(PAUSE_CHECK_INTERVAL);
            // Either a loss was told, or the sleep is over: both are looked at above.
            let _ = timeout(sleep, loss.changed()).await;
        }
    }

    fn check(&self) -> Result<(), Lost> {
        self.guards.iter().try_for_each(|guard| guard.hold().check())
    }
}
