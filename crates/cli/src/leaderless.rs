//! A cluster without a leader, noticed soon: for whoever wants to try once and not to wait (`--wait 0s`).
//!
//! The client library gives a cluster some seconds to elect a leader. Somebody who tries once is told after one.

use std::future::pending;
use std::time::Duration;

use holdfast_client::unary::Unary;
use holdfast_client::{Unavailable, UnavailableCause};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::cli::Global;
use crate::exit::Problem;
use crate::one_shot;

/// An election after a crash takes half of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Also before the first look: mostly all is well, and the work is done by then.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// Returns when for a second all nodes that answer have said that nobody leads; never if `is_asked` is false.
/// Nodes that say nothing, or cannot be reached, are left to the call that goes on beside this.
pub(crate) async fn noticed(is_asked: bool, global: &Global) -> Problem {
    let calls = match one_shot::calls(global) {
        Ok(calls) if is_asked => calls,
        _ => return pending().await,
    };
    let mut since: Option<Instant> = None;
    loop {
        sleep(LOOK_INTERVAL).await;
        let Some(witness) = who_knows_no_leader(&calls, global).await else {
            since = None;
            continue;
        };
        if since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            return Problem::from(&Unavailable {
                message: format!("{witness} has known none for a second"),
                cause: UnavailableCause::NoLeader,
                may_have_happened: true,
            });
        }
    }
}

/// A node that knows none, if some answer and all of these do not either.
async fn who_knows_no_leader(calls: &Unary, global: &Global) -> Option<String> {
    let mut looks = JoinSet::new();
    for address in addresses(global) {
        let calls = calls.clone();
        looks.spawn(async move {
            let view = timeout(ANSWER_PATIENCE, calls.own_view(&address)).await.ok()??;
            Some((address, view.groups.iter().all(|group| group.leader != 0)))
        });
    }
    let answers: Vec<(String, bool)> = looks.join_all().await.into_iter().flatten().collect();
    let is_led = answers.iter().any(|(_, is_led)| *is_led);
    answers.into_iter().map(|(address, _)| address).next().filter(|_| !is_led)
}

/// As they were given.
fn addresses(global: &Global) -> impl Iterator<Item = String> {
    let parts = global.endpoints.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.strip_prefix("http://").unwrap_or(part).trim_end_matches('/').to_owned())
}
