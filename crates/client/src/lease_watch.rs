//! Watching over the lease of what is held: until it is at risk, until it is lost, or while something is done.
//!
//! A task that waits here trusts no timer for long: timers stand still while the machine sleeps.

use std::time::Duration;

use holdfast_client_core::error::{LossReason, Lost};
use holdfast_client_core::lease::LocalTime;
use holdfast_client_core::loss::LossSignal;
use tokio::time::timeout;

use holdfast_lease_clock as clock;

/// The longest sleep of a task that waits for the end of a lease. A pause of the machine is noticed this
/// long after waking up at the latest.
const PAUSE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// One lock, or several that count together.
pub(crate) trait Held {
    /// Reads the clock.
    fn check(&self) -> Result<(), Lost>;

    fn valid_until(&self) -> LocalTime;

    fn at_risk_from(&self) -> LocalTime;

    /// Ready when a loss is reported; `None` if nothing is held.
    fn loss_signal(&self) -> Option<LossSignal>;
}

pub(crate) fn valid_for(held: &impl Held) -> Duration {
    match held.check() {
        Ok(()) => held.valid_until().saturating_since(clock::now()),
        Err(_) => Duration::ZERO,
    }
}

pub(crate) async fn lost(held: &impl Held) -> LossReason {
    let Some(mut signal) = held.loss_signal() else { return std::future::pending().await };
    loop {
        if let Err(lost) = held.check() {
            return lost.reason;
        }
        wait(&mut signal, valid_for(held)).await;
    }
}

pub(crate) async fn at_risk(held: &impl Held) {
    let Some(mut signal) = held.loss_signal() else { return std::future::pending().await };
    while held.check().is_ok() {
        let left = held.at_risk_from().saturating_since(clock::now());
        if left.is_zero() {
            return;
        }
        wait(&mut signal, left).await;
    }
}

/// A loss that is there already, or comes at the same moment, goes before the work; so does one that came while
/// the work let no other task run.
pub(crate) async fn run_while_held<F: Future>(
    held: &impl Held,
    work: F,
) -> Result<F::Output, Lost> {
    tokio::select! {
        biased;
        reason = lost(held) => Err(Lost { reason }),
        done = work => held.check().map(|()| done),
    }
}

/// Returns when a loss is reported, or when it is time to look again.
async fn wait(signal: &mut LossSignal, longest: Duration) {
    let _ = timeout(longest.min(PAUSE_CHECK_INTERVAL), signal).await;
}
