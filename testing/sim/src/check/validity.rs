//! Nothing is granted to the dead: a session that has ended gets no lock and no place in a queue, and when it
//! ends, its holds and waits have ended.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::{Event, LockName, SessionId};

use super::evidence::Evidence;
use super::findings::{Findings, Which, Who};
use crate::history::Violation;

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("validity");
    // Each session that lives, with what it holds and waits for.
    let mut living: BTreeMap<SessionId, BTreeSet<(What, &LockName, u64)>> = BTreeMap::new();
    for entry in history.log() {
        let index = entry.index.0;
        for event in &entry.events {
            let (session, change) = match event {
                Event::SessionOpened { session, .. } => {
                    if living.insert(*session, BTreeSet::new()).is_some() {
                        findings.add(format!("{} opened twice, at index {index}", Who(*session)));
                    }
                    continue;
                }
                Event::SessionEnded { session, .. } => {
                    let Some(left) = living.remove(session) else {
                        findings.add(format!(
                            "{} ended at index {index} and did not live",
                            Who(*session)
                        ));
                        continue;
                    };
                    for (what, name, number) in left {
                        findings.add(format!(
                            "{} ended at index {index} and left behind a {what:?} of {name} ({number})",
                            Who(*session)
                        ));
                    }
                    continue;
                }
                Event::Granted { name, session, request, token, .. } => {
                    if !living.contains_key(session) {
                        findings.add(format!(
                            "{name} was granted under {token} at index {index} to {}, which had ended",
                            Which(*session, *request)
                        ));
                    }
                    (session, Change::Begin(What::Hold, name, request.0))
                }
                Event::Queued { name, session, request, .. } => {
                    if !living.contains_key(session) {
                        findings.add(format!(
                            "{} of an ended session queued for {name} at index {index}",
                            Which(*session, *request)
                        ));
                    }
                    (session, Change::Begin(What::Wait, name, request.0))
                }
                Event::WaitEnded { names, session, request, .. } => {
                    if let Some(has) = living.get_mut(session) {
                        for name in names.iter() {
                            has.remove(&(What::Wait, name, request.0));
                        }
                    }
                    continue;
                }
                Event::Released { name, session, request, .. }
                | Event::HoldEnded { name, session, request, .. } => {
                    (session, Change::End(What::Hold, name, request.0))
                }
                Event::Refused { .. }
                | Event::Converted { .. }
                | Event::Proclaimed { .. }
                | Event::Reopened { .. }
                | Event::Intervened(_)
                | Event::AccessChanged { .. }
                | Event::OwnershipChanged { .. }
                | Event::Thawed { .. } => continue,
            };
            if let Some(has) = living.get_mut(session) {
                match change {
                    Change::Begin(what, name, number) => has.insert((what, name, number)),
                    Change::End(what, name, number) => has.remove(&(what, name, number)),
                };
            }
        }
    }
    findings.into_violations()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Hold,
    Wait,
}

/// A hold by its acquire, a wait by its request.
enum Change<'a> {
    Begin(What, &'a LockName, u64),
    End(What, &'a LockName, u64),
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::*;
    use holdfast_core::{EndReason, Outcome, Rejection};

    fn a_holder_and_a_waiter() -> TestHistory {
        let mut story = TestHistory::default();
        story.log(1, [opened(1), opened(2)]);
        story.log(2, [granted("a", 1, 1, 1)]);
        story.log(3, [queued("a", 2, 1)]);
        story
    }

    fn gone() -> Outcome {
        Outcome::Rejected(Rejection::UnknownSession)
    }

    #[test]
    fn a_session_that_ends_with_all_it_has_is_fine() {
        let mut story = a_holder_and_a_waiter();
        story.log(4, [wait_ended("a", 2, 1, gone()), ended(2, EndReason::Ttl)]);
        story.log(5, [hold_ended("a", 1, 1, 1), ended(1, EndReason::Ttl)]);
        assert_eq!(check(&story.evidence()), []);
    }

    #[test]
    fn a_grant_to_a_waiter_whose_session_died_is_found() {
        let mut story = a_holder_and_a_waiter();
        story.log(4, [wait_ended("a", 2, 1, gone()), ended(2, EndReason::Ttl)]);
        story.log(5, [released("a", 1, 1, 1), granted("a", 2, 1, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_wait_or_a_hold_that_outlives_its_session_is_found() {
        let mut story = a_holder_and_a_waiter();
        story.log(4, [ended(2, EndReason::Ttl)]);
        story.log(5, [ended(1, EndReason::Closed)]);
        assert_eq!(check(&story.evidence()).len(), 2);
    }

    #[test]
    fn a_session_that_queues_after_its_end_is_found() {
        let mut story = a_holder_and_a_waiter();
        story.log(4, [queued("a", 3, 1)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }
}
