//! How a lock is to be held and waited for: what `lock` and `acquire` have in common.

use std::time::Duration;

use clap::{Args, ValueEnum};
use holdfast_client::{LockAllRequest, LockRequest, Member, Policy};
use holdfast_proto::v1;

use crate::duration;
use crate::tier::TierArg;

const HEADING: &str = "How it is held";

#[derive(Debug, Args)]
pub(crate) struct TermsArgs {
    /// Holds the lock together with other clients that ask for it shared.
    #[arg(long, help_heading = HEADING)]
    pub(crate) shared: bool,
    /// Holds one of N permits. All clients of the semaphore state the same N, or 0 for the number that `holdfast
    /// set-permits` has set.
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "shared", help_heading = HEADING,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) permits: Option<u32>,
    /// Which tier grants the lock.
    #[arg(long, value_enum, value_name = "TIER", default_value_t = TierArg::Correctness,
          help_heading = HEADING)]
    pub(crate) tier: TierArg,
    /// What to do when another session is in the way.
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = PolicyArg::Detect,
          help_heading = HEADING)]
    pub(crate) policy: PolicyArg,
    /// Allows an older session with --policy wound-wait to take the lock away.
    #[arg(long, help_heading = HEADING)]
    pub(crate) preemptible: bool,
    /// If the lock ends without a release, no client gets it for this long, at most 1h.
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse_lock_delay,
          help_heading = HEADING)]
    pub(crate) lock_delay: Option<Duration>,
    /// Why the lock is held, shown in listings.
    #[arg(long, value_name = "TEXT", help_heading = HEADING)]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Wait, but end with 75 at once if that would be a deadlock.
    Detect,
    /// Wait until the deadline, even in a deadlock.
    Wait,
    /// Wait for younger sessions only; end with 75 at once if an older one is in the way.
    WaitDie,
    /// Take preemptible locks from younger sessions, and wait for the rest.
    WoundWait,
}

impl PolicyArg {
    fn to_policy(self) -> Policy {
        match self {
            PolicyArg::Detect => Policy::Detect,
            PolicyArg::Wait => Policy::Wait,
            PolicyArg::WaitDie => Policy::WaitDie,
            PolicyArg::WoundWait => Policy::WoundWait,
        }
    }

    fn to_wire(self) -> v1::Policy {
        match self {
            PolicyArg::Detect => v1::Policy::Detect,
            PolicyArg::Wait => v1::Policy::Wait,
            PolicyArg::WaitDie => v1::Policy::WaitDie,
            PolicyArg::WoundWait => v1::Policy::WoundWait,
        }
    }
}

impl TermsArgs {
    pub(crate) fn on_one(&self, mut request: LockRequest) -> LockRequest {
        request = request.policy(self.policy.to_policy()).metadata(self.metadata());
        request = request.tier(self.tier.to_tier());
        if self.shared {
            request = request.shared();
        }
        if let Some(permits) = self.permits {
            request = request.permits(permits);
        }
        if self.preemptible {
            request = request.preemptible();
        }
        match self.lock_delay {
            Some(lock_delay) => request.lock_delay(lock_delay),
            None => request,
        }
    }

    pub(crate) fn on_all(&self, mut request: LockAllRequest) -> LockAllRequest {
        request = request.policy(self.policy.to_policy()).metadata(self.metadata());
        request = request.tier(self.tier.to_tier());
        if self.preemptible {
            request = request.preemptible();
        }
        match self.lock_delay {
            Some(lock_delay) => request.lock_delay(lock_delay),
            None => request,
        }
    }

    pub(crate) fn member(&self, name: &str) -> Member {
        if self.shared { Member::shared(name) } else { Member::exclusive(name) }
    }

    pub(crate) fn on_wire(&self, request: v1::AcquireRequest) -> v1::AcquireRequest {
        let mode = match self.permits {
            Some(_) => v1::Mode::Permit,
            None if self.shared => v1::Mode::Shared,
            None => v1::Mode::Exclusive,
        };
        let whole_ms = |delay: Duration| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        v1::AcquireRequest {
            mode: mode.into(),
            permits: self.permits.unwrap_or(0),
            policy: self.policy.to_wire().into(),
            preemptible: self.preemptible,
            lock_delay_ms: self.lock_delay.map(whole_ms),
            tier: self.tier.to_wire().into(),
            metadata: self.metadata(),
            ..request
        }
    }

    fn metadata(&self) -> Vec<u8> {
        self.reason.clone().unwrap_or_default().into_bytes()
    }
}
