//! What `acquire`, `release` and `renew` share: a session that outlives the command, without
//! heartbeats, and the output that the next command needs.

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_client::SessionId;
use holdfast_client::unary::Unary;

use crate::cli::Global;
use crate::exit::Problem;

/// The acquire is the first request of its session; all later ones use the time.
pub(crate) const ACQUIRE_REQUEST_ID: u64 = 1;

/// The wall clock in microseconds: separate commands never use the same number twice, as long as one
/// script runs them. Nothing else hangs on it: it is a number, and no time, to the cluster.
pub(crate) fn next_request_id() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX).max(ACQUIRE_REQUEST_ID + 1)
}

/// Tokens start at 1 and stay below 2^63.
pub(crate) fn token_parser() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..holdfast_proto::TOKEN_LIMIT)
}

pub(crate) fn calls(global: &Global) -> Result<Unary, Problem> {
    Ok(Unary::new(&global.endpoints)?)
}

/// The session of a script goes with its lock. If this fails the TTL ends it.
pub(crate) async fn close_session(calls: &Unary, session: SessionId) {
    let _ = calls.close_session(session, next_request_id()).await;
}
