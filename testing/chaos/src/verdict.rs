//! What is asked of a cluster when all faults are healed, and of the history when all is over.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use holdfast_core::{Outcome, SessionId};
use holdfast_proto::v1::GroupStatus;
use holdfast_sim::check::{Promises, check_with};
use holdfast_sim::history::{History, Input, Output, Violation};

use crate::audited::AuditFile;
use crate::clients::{Answer, Calls, Kept};
use crate::cluster::Cluster;
use crate::division::Division;
use crate::event_order;

const CONVERGENCE_PATIENCE: Duration = Duration::from_secs(30);

/// What there is to judge when all is over.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    /// Of each group, with its number.
    pub(crate) histories: &'a [(u32, History)],
    pub(crate) files: &'a [AuditFile],
    pub(crate) division: &'a Division,
}

/// All nodes answer, and have applied the same in each group, byte for byte.
pub(crate) async fn convergence(cluster: &Cluster) -> Option<Violation> {
    let give_up = Instant::now() + CONVERGENCE_PATIENCE;
    loop {
        let views = cluster.views().await;
        let states: BTreeSet<_> = views
            .values()
            .map(|groups| {
                groups.as_ref().map(|groups| groups.iter().map(state).collect::<Vec<_>>())
            })
            .collect();
        if states.len() == 1 && !states.contains(&None) {
            return None;
        }
        if Instant::now() > give_up {
            let what = views
                .iter()
                .map(|(node, groups)| match groups {
                    Some(groups) => {
                        let states: Vec<_> = groups.iter().map(state).collect();
                        format!("node {node}: groups, indexes and digests {states:?}")
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

fn state(view: &GroupStatus) -> (u32, u64, String) {
    (view.group, view.applied_index, view.digest.clone())
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

/// What the checkers say of the history of each group, and the audit files of all groups.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let Evidence { histories, files, division } = evidence;
    let mut violations = event_order::judge(files, division, histories);
    for (group, history) in *histories {
        let of_group = judge_group(history).into_iter().map(|violation| match histories.len() {
            1 => violation,
            _ => Violation { what: format!("group {group}: {}", violation.what), ..violation },
        });
        violations.extend(of_group);
    }
    violations
}

/// A name that the checkers cannot decide is a violation: silence about it would pass for an acquittal.
fn judge_group(history: &History) -> Vec<Violation> {
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

/// Would the checkers have seen it? Shows them histories and files that are spoiled. If they find nothing new, what they
/// found before proves nothing.
pub(crate) fn blindness(evidence: &Evidence<'_>) -> Vec<Violation> {
    let Evidence { histories, files, division } = evidence;
    let mut words: Vec<String> = histories
        .iter()
        .filter_map(|(group, history)| {
            Some(format!("group {group}: {}", is_blind_to_twin(history)?))
        })
        .collect();
    if let Some((last, _)) = histories.last().filter(|(group, _)| *group > 1) {
        let swapped: Vec<AuditFile> =
            files.iter().map(|file| file.with_groups_swapped(1, *last)).collect();
        let before = event_order::judge(files, division, histories).len();
        if event_order::judge(&swapped, division, histories).len() <= before {
            words.push(format!(
                "the checkers do not see that groups 1 and {last} swapped their events"
            ));
        }
    }
    words.into_iter().map(|what| Violation { checker: "blindness", what }).collect()
}

/// Shows the checkers the history with one grant given to a second session as well.
fn is_blind_to_twin(history: &History) -> Option<&'static str> {
    let mut spoiled = history.clone();
    let granted = spoiled.operations.iter().find(|operation| {
        matches!(operation.input, Input::Acquire { .. })
            && matches!(operation.returned, Some((_, Output::Outcome(Outcome::Granted(_)))))
    });
    match granted.cloned() {
        None => Some("no lock was ever granted: there is nothing to judge"),
        Some(mut twin) => {
            twin.session = SessionId(twin.session.0 ^ 1);
            spoiled.operations.push(twin);
            let is_seen = judge_group(&spoiled).len() > judge_group(history).len();
            (!is_seen).then_some("the checkers do not see one lock granted twice under one token")
        }
    }
}
