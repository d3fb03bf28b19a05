//! Notices within a short `--wait` (such as 3s) that the cluster has no leader.
//!
//! The client library gives a cluster five or ten seconds to elect a leader, however short the wait for the lock is. A caller that
//! wants to wait less than that is told soon after this time is over; after a second at the earliest.

use std::future::pending;
use std::time::Duration;

use holdfast_client::unary::{CallError, Unary};
use holdfast_client::{Unavailable, UnavailableCause};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::duration;
use crate::exit::Problem;
use crate::global::Global;
use crate::one_shot;

/// An election after a crash takes half of it.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// The longest of the client library's own.
const PATIENCE_MAX: Duration = Duration::from_secs(10);
/// In the time that there is, or fewer: each look is a call to each node. The first comes after a pause too: mostly all is
/// well, and the work is done by then.
const LOOKS: u32 = 10;
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(500);
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);
/// A node waits for a leader for a second, then asks the other members.
const ASK_PATIENCE: Duration = Duration::from_millis(1_600);
/// What is left of that when nothing more is waited for.
const REASON_PATIENCE: Duration = Duration::from_millis(700);

/// Returns when for the whole wait all nodes that answer have known no leader; never for a caller that waits at least as
/// long as the client library does, or did not say (none). Nodes that say nothing, or cannot be reached, are left to the
/// call that goes on beside this.
pub(crate) async fn noticed(wait: Option<Duration>, global: &Global) -> Problem {
    let patience = wait.map(|wait| wait.max(PATIENCE_MIN)).filter(|wait| *wait < PATIENCE_MAX);
    let (Some(patience), Ok(calls)) = (patience, one_shot::calls(global)) else {
        return pending().await;
    };
    // A caller that tries once joins no queue, and makes few calls.
    let least = if wait == Some(Duration::ZERO) { Duration::ZERO } else { LOOK_INTERVAL_MIN };
    let mut since: Option<(Instant, JoinSet<Why>)> = None;
    loop {
        sleep((patience / LOOKS).max(least)).await;
        let Some(witness) = who_knows_no_leader(&calls, global).await else {
            since = None;
            continue;
        };
        let (begun, asking) = since.get_or_insert_with(|| (Instant::now(), ask_why(&calls)));
        if begun.elapsed() < patience {
            continue;
        }
        match timeout(REASON_PATIENCE, asking.join_next()).await {
            // There is one after all, elsewhere.
            Ok(Some(Ok(Why::IsLed))) => since = None,
            Ok(Some(Ok(Why::NoLeader(problem)))) => return *problem,
            _ => {
                let patience = duration::as_written(patience);
                return Problem::from(&Unavailable {
                    message: format!("{witness} has known none for {patience}"),
                    cause: UnavailableCause::NoLeader,
                    may_have_happened: true,
                });
            }
        }
    }
}

/// What a node says that is asked for something only a leader has.
enum Why {
    IsLed,
    NoLeader(Box<Problem>),
    Silent,
}

/// A node that knows no leader finds out why, which takes it a second or two.
fn ask_why(calls: &Unary) -> JoinSet<Why> {
    let calls = calls.clone().timeout(ASK_PATIENCE);
    let mut asking = JoinSet::new();
    asking.spawn(async move {
        match calls.freezes().await {
            Ok(_) => Why::IsLed,
            Err(CallError::Unavailable(mut unavailable)) => {
                unavailable.may_have_happened = true;
                Why::NoLeader(Box::new(Problem::from(&unavailable)))
            }
            Err(_) => Why::Silent,
        }
    });
    asking
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
