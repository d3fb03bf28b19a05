//! What is asked of a cluster when all faults are healed, and of the history when all is over.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use holdfast_core::{Outcome, SessionId};
use holdfast_sim::check::{Promises, check_with};
use holdfast_sim::history::{History, Input, Output, Violation};

use crate::clients::{Answer, Calls, Kept};
use crate::cluster::Cluster;

const CONVERGENCE_PATIENCE: Duration = Duration::from_secs(30);

/// All nodes answer, and have applied the same, byte for byte.
pub(crate) async fn convergence(cluster: &Cluster) -> Option<Violation> {
    let give_up = Instant::now() + CONVERGENCE_PATIENCE;
    loop {
        let views = cluster.views().await;
        let states: BTreeSet<_> = views
            .values()
            .map(|view| view.as_ref().map(|view| (view.applied_index, view.digest.clone())))
            .collect();
        if states.len() == 1 && !states.contains(&None) {
            return None;
        }
        if Instant::now() > give_up {
            let what = views
                .iter()
                .map(|(node, view)| match view {
                    Some(view) => {
                        format!("node {node}: index {}, digest {}", view.applied_index, view.digest)
                    }
                    None => format!("node {node}: no answer"),
                })
                .collect::<Vec<_>>()
                .join("; ");
            return Some(Violation { checker: "convergence", what });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Every grant that was acknowledged and not given back is still there, under its token.
pub(crate) async fn kept_locks(calls: &mut Calls, kept: &[Kept]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for lock in kept {
        let found = match calls.status(&lock.name).await {
            Answer::Given(status, _) => status
                .holders
                .first()
                .map(|holder| (holder.public_session_id.clone(), holder.token)),
            Answer::Refused(..) | Answer::Never => {
                let what = format!("no node says who holds {}", lock.name);
                violations.push(Violation { checker: "kept locks", what });
                // The others would take as long, to the same end.
                return violations;
            }
        };
        if found != Some((lock.public_session_id.clone(), lock.token.0)) {
            let what = format!(
                "{} was granted to session {} under token {}; now its holder is {found:?}",
                lock.name, lock.public_session_id, lock.token
            );
            violations.push(Violation { checker: "kept locks", what });
        }
    }
    violations
}

/// What the checkers say. A name that they cannot decide is a violation: silence about it would pass for
/// an acquittal.
pub(crate) fn judge(history: &History) -> Vec<Violation> {
    check_with(history, &Promises { giving_up_is_a_violation: true, ..Promises::default() })
}

/// What a run must have seen to say anything about it.
pub(crate) fn unseen(snapshot_installs: u64, silent_sessions_ended: u64) -> Vec<Violation> {
    let seen = [
        (snapshot_installs, "no node came back by a snapshot"),
        (silent_sessions_ended, "no silent session was seen to end"),
    ];
    let unseen = seen.into_iter().filter(|(count, _)| *count == 0);
    unseen.map(|(_, what)| Violation { checker: "blindness", what: what.to_owned() }).collect()
}

/// Would the checkers have seen it? Shows them the history with one grant given to a second session as
/// well; a history without grants, or checkers that find nothing new, prove nothing.
pub(crate) fn blindness(history: &History) -> Option<Violation> {
    let mut spoiled = history.clone();
    let granted = spoiled.operations.iter().find(|operation| {
        matches!(operation.input, Input::Acquire { .. })
            && matches!(operation.returned, Some((_, Output::Outcome(Outcome::Granted(_)))))
    });
    let words = match granted.cloned() {
        None => "no lock was ever granted: there is nothing to judge",
        Some(mut twin) => {
            twin.session = SessionId(twin.session.0 ^ 1);
            spoiled.operations.push(twin);
            if judge(&spoiled).len() > judge(history).len() {
                return None;
            }
            "the checkers do not see one lock granted twice under one token"
        }
    };
    Some(Violation { checker: "blindness", what: words.to_owned() })
}
