//! What `acquire`, `release` and `renew` share: a session that outlives the command, without
//! heartbeats, and the output that the next command needs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_client::SessionId;
use holdfast_client::unary::{CallError, CallId, Unary};

use crate::exit::Problem;
use crate::global::Global;

/// The acquire is the first request of its session; all later ones use the time.
pub(crate) const ACQUIRE_REQUEST_ID: u64 = 1;

/// A command acknowledges what is older than this: more than any command takes, so that none loses
/// its answer to another that runs beside it, and more than clocks are set back by. In this time a
/// session can make as many calls as the cluster keeps answers for, thousands.
const ACKNOWLEDGED_AFTER: Duration = Duration::from_secs(60);

/// The wall clock in microseconds: separate commands never use the same number twice, as long as one
/// script runs them. To the cluster it is a number, and no time; but a command whose clock is more
/// than a minute behind that of an earlier one is refused.
pub(crate) fn next_request_id() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX).max(ACQUIRE_REQUEST_ID + 1)
}

/// For a call whose answer the cluster keeps.
pub(crate) fn next_call_id() -> CallId {
    call_id(next_request_id())
}

fn call_id(request_id: u64) -> CallId {
    let lag = u64::try_from(ACKNOWLEDGED_AFTER.as_micros()).unwrap_or(u64::MAX);
    CallId { request_id, acked_through: request_id.saturating_sub(lag) }
}

pub(crate) fn calls(global: &Global) -> Result<Unary, Problem> {
    global.calls()
}

/// For a command that waits so long: one that tries once does not wait for the rate of a quota either.
pub(crate) fn calls_within(global: &Global, wait: Duration) -> Result<Unary, Problem> {
    let calls = calls(global)?;
    Ok(if wait.is_zero() { calls.fail_if_rate_limited() } else { calls })
}

/// The session of a script goes with its lock. If this fails the TTL ends it.
pub(crate) async fn close_session(calls: &Unary, session: SessionId) -> Result<(), CallError> {
    calls.close_session(session, next_request_id()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the cluster keeps per session.
    const ANSWERS_MAX: usize = 8_192;

    #[test]
    fn a_session_that_is_renewed_for_ever_does_not_fill_up_the_answers() {
        let start = next_request_id();
        let renewals = (0..3 * ANSWERS_MAX as u64).map(|count| call_id(start + count * 10_000));
        let mut kept = std::collections::VecDeque::new();
        for call in renewals {
            while kept.front().is_some_and(|oldest| *oldest <= call.acked_through) {
                kept.pop_front();
            }
            kept.push_back(call.request_id);
            assert!(kept.len() < ANSWERS_MAX, "a hundred a second are too many");
        }
    }

    #[test]
    fn a_command_does_not_take_the_answer_from_one_beside_it() {
        let slow = call_id(next_request_id());
        let later = call_id(slow.request_id + 10_000_000);
        assert!(later.acked_through < slow.request_id);
    }
}
