//! Several locks that are held together.

use std::time::Duration;

use holdfast_client_core::error::{LossReason, Lost, Since};
use holdfast_client_core::hold::ReleaseOutcome;
use holdfast_client_core::lease::LocalTime;
use holdfast_client_core::loss::LossSignal;

use crate::error::{ReleaseError, RenewError};
use crate::guard::Guard;
use crate::lease_watch::{self, Held};

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

    /// Returns once all are given back, with what became of each, in the order in which they were asked for:
    /// one that is not [`ReleaseOutcome::Released`] had ended before. The first that could not be given back
    /// is the error; the rest is released all the same.
    pub async fn release(self) -> Result<Vec<(String, ReleaseOutcome)>, ReleaseError> {
        let names: Vec<String> = self.names().map(str::to_owned).collect();
        // All go out together, in one frame.
        let releases: Vec<_> = self.guards.into_iter().map(Guard::start_release).collect();
        let mut answers = Vec::with_capacity(releases.len());
        for (name, release) in names.into_iter().zip(releases) {
            answers.push(release.await.map(|outcome| (name, outcome)));
        }
        answers.into_iter().collect()
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
        lease_watch::valid_for(self)
    }

    /// As [`Guard::is_valid_for`], for all of them.
    pub fn is_valid_for(&self, span: Duration) -> bool {
        self.valid_for() >= span
    }

    /// As [`Guard::since`].
    pub fn since(&self) -> Option<Since> {
        self.guards.first().and_then(Guard::since)
    }

    /// As [`Guard::at_risk`], of any of them.
    pub async fn at_risk(&self) {
        lease_watch::at_risk(self).await;
    }

    /// As [`Guard::ends_by`], of the one that ends first.
    pub fn ends_by(&self) -> LossReason {
        let first = self.guards.iter().min_by_key(|guard| guard.valid_until());
        first.map_or(LossReason::Expired, Guard::ends_by)
    }

    /// Returns when one of them is lost, and only then.
    pub async fn lost(&self) -> LossReason {
        lease_watch::lost(self).await
    }

    /// The names of those whose end the cluster has told. It keeps the others for this session until they are released.
    pub fn ended_names(&self) -> impl Iterator<Item = &str> {
        self.guards.iter().filter(|guard| guard.has_ended()).map(Guard::name)
    }

    /// As [`Guard::run_while_held`], while all of them are held.
    pub async fn run_while_held<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        lease_watch::run_while_held(self, work).await
    }
}

impl Held for GuardAll {
    fn check(&self) -> Result<(), Lost> {
        self.guards.iter().try_for_each(Held::check)
    }

    fn valid_until(&self) -> LocalTime {
        GuardAll::valid_until(self)
    }

    fn at_risk_from(&self) -> LocalTime {
        let risks = self.guards.iter().map(Held::at_risk_from);
        risks.min().unwrap_or(LocalTime(Duration::ZERO))
    }

    /// They share the news of a loss.
    fn loss_signal(&self) -> Option<LossSignal> {
        self.guards.first().and_then(Held::loss_signal)
    }
}
