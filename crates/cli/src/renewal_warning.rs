//! Warns early that the cluster does not renew the lease of a running command. Without the warning the caller would
//! learn of an outage only when the command gets SIGTERM, most of a TTL later.

use std::convert::Infallible;
use std::time::Duration;

use holdfast_client::unary::Unary;
use holdfast_client::{Circuit, CircuitState, Client, LossReason};
use tokio::time::sleep;

use crate::duration::in_words;
use crate::exit::Problem;
use crate::held::Held;

const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// A node without a leader needs a second or two to say why there is none.
const CAUSE_PATIENCE: Duration = Duration::from_millis(2_500);
/// Heartbeats leave every third of a lease. One that is unanswered for this share of a lease is late.
const LATE_SHARE: u32 = 10;

/// Where to see that renewals fail, and whom to ask for the cause.
#[derive(Debug)]
pub(crate) struct RenewalWarning {
    circuit: Circuit,
    calls: Unary,
}

impl RenewalWarning {
    pub(crate) fn new(client: &Client, calls: &Unary) -> RenewalWarning {
        RenewalWarning { circuit: client.circuit(), calls: calls.clone().timeout(CAUSE_PATIENCE) }
    }

    /// Watches the lease until it is dropped. `notice`: the command gets SIGTERM that long before the lease ends.
    pub(crate) async fn watch(
        &self,
        held: &Held,
        notice: Duration,
        say: impl Fn(&str),
    ) -> Infallible {
        let full = held.valid_for();
        loop {
            self.until(held, full, true).await;
            let cause = self.cause().await;
            // A new leader may have been elected since.
            if !self.is_failing(held, full) {
                continue;
            }
            say(&warning(&cause, full, held.valid_for(), notice));
            self.until(held, full, false).await;
            say("the cluster answers again, and the lock is held");
        }
    }

    async fn until(&self, held: &Held, full: Duration, is_failing: bool) {
        while self.is_failing(held, full) != is_failing {
            sleep(CHECK_INTERVAL).await;
        }
    }

    fn is_failing(&self, held: &Held, full: Duration) -> bool {
        // A hold that ends by its own time first gains nothing by a renewal.
        let ends_with_lease = held.ends_by() == LossReason::Expired;
        let is_late = held.valid_for() < full * 2 / 3 - full / LATE_SHARE;
        ends_with_lease && (is_late || self.circuit.state() != CircuitState::Closed)
    }

    async fn cause(&self) -> String {
        match self.calls.freezes().await {
            Ok(_) => "the cluster does not answer the renewals of this session".to_owned(),
            Err(error) => Problem::from(error).first_line().to_owned(),
        }
    }
}

fn warning(cause: &str, full: Duration, left: Duration, notice: Duration) -> String {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let (renewed, safe) = (in_words(ms(full.saturating_sub(left))), in_words(ms(left)));
    let term = in_words(ms(left.saturating_sub(notice)));
    format!(
        "{cause}\n  the lease was last renewed {renewed} ago, and the lock is safe for another {safe}; the command gets \
         SIGTERM in {term} unless the cluster answers before"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_says_how_long_the_lock_is_safe_and_when_the_command_ends() {
        let seconds = Duration::from_secs;
        let words = warning("cannot reach any node", seconds(30), seconds(24), seconds(5));
        assert_eq!(
            words,
            "cannot reach any node\n  the lease was last renewed 6.0s ago, and the lock is safe for another 24.0s; the \
             command gets SIGTERM in 19.0s unless the cluster answers before"
        );
    }
}
