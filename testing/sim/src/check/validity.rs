//! Nothing is granted to the dead: a session that has ended gets no lock and no place in a queue. Its holds and waits may
//! end some entries after that; then one event tells of the decision, and another when all have ended. From the decision
//! on, from the entry in which an operator kills the session, or from the answer that it is closed, it counts as ended.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::command::Action;
use holdfast_core::{EndReason, Event, LockName, Outcome, PublicSessionId, SessionId};

use super::evidence::Evidence;
use super::findings::{Findings, Which, Who};
use crate::history::{Output, RealTime, Violation};

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("validity");
    // Each session that lives, with what it holds and waits for.
    let mut living: BTreeMap<SessionId, BTreeSet<(What, &LockName, u64)>> = BTreeMap::new();
    let mut shown_as: BTreeMap<PublicSessionId, Vec<SessionId>> = BTreeMap::new();
    let mut killed: BTreeSet<SessionId> = BTreeSet::new();
    let mut ending: BTreeMap<SessionId, EndReason> = BTreeMap::new();
    let closed: BTreeMap<SessionId, RealTime> = history
        .operations
        .iter()
        .filter_map(|operation| match operation.returned {
            Some((at, Output::Outcome(Outcome::SessionClosed))) => Some((operation.session, at)),
            _ => None,
        })
        .collect();
    for entry in history.log() {
        let index = entry.index.0;
        for event in &entry.events {
            let is_over = |session: &SessionId| {
                killed.contains(session)
                    || ending.contains_key(session)
                    || closed.get(session).is_some_and(|at| *at < entry.first_applied)
            };
            if let Event::Granted { session, .. }
            | Event::Queued { session, .. }
            | Event::Converted { session, .. } = event
                && is_over(session)
            {
                findings.add(format!(
                    "{} had ended before index {index}, and then: {event:?}",
                    Who(*session)
                ));
            }
            let (session, change) = match event {
                Event::Intervened(intervention) => {
                    if let Action::KillSession { session } = intervention.action {
                        killed.extend(shown_as.get(&session).into_iter().flatten());
                    }
                    continue;
                }
                Event::SessionOpened { session, public, .. } => {
                    shown_as.entry(*public).or_default().push(*session);
                    if living.insert(*session, BTreeSet::new()).is_some() {
                        findings.add(format!("{} opened twice, at index {index}", Who(*session)));
                    }
                    continue;
                }
                Event::SessionEnding { session, reason, .. } => {
                    let again = ending.insert(*session, *reason);
                    if again.is_some() || !living.contains_key(session) {
                        findings.add(format!(
                            "the end of {} was decided at index {index}, and it did not live",
                            Who(*session)
                        ));
                    }
                    continue;
                }
                Event::SessionEnded { session, reason, .. } => {
                    if let Some(decided) = ending.get(session).filter(|it| *it != reason) {
                        findings.add(format!(
                            "{} ended ({reason:?}) at index {index}, and what was decided is {decided:?}",
                            Who(*session)
                        ));
                    }
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
                Event::Granted { name, session, request, token, .. }
                | Event::HoldMovedIn { name, session, request, token, .. } => {
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
                | Event::AccessChanged { .. }
                | Event::PolicyAdopted { .. }
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
    use holdfast_core::command::Action;
    use holdfast_core::{EndReason, Outcome, PublicSessionId, Rejection};

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
    fn a_session_that_was_killed_may_end_later_and_is_granted_nothing_meanwhile() {
        let mut story = a_holder_and_a_waiter();
        story.log(4, [intervened(Action::KillSession { session: PublicSessionId(2) })]);
        story.log(5, [wait_ended("a", 2, 1, gone()), ended(2, EndReason::Killed)]);
        assert_eq!(check(&story.evidence()), []);
        let mut story = a_holder_and_a_waiter();
        story.log(4, [intervened(Action::KillSession { session: PublicSessionId(2) })]);
        story.log(5, [released("a", 1, 1, 1), granted("a", 2, 1, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_large_session_keeps_its_reason_and_gets_nothing_after_the_decision() {
        let decided = || {
            let mut story = a_holder_and_a_waiter();
            story.log(4, [ending(2, EndReason::Ttl)]);
            story
        };
        let mut story = decided();
        story.log(5, [wait_ended("a", 2, 1, gone()), ended(2, EndReason::Ttl)]);
        assert_eq!(check(&story.evidence()), []);
        let mut story = decided();
        story.log(5, [released("a", 1, 1, 1), granted("a", 2, 1, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
        let mut story = decided();
        story.log(5, [wait_ended("a", 2, 1, gone()), ended(2, EndReason::Closed)]);
        assert_eq!(check(&story.evidence()).len(), 1, "another reason");
        let mut story = decided();
        story.log(5, [ending(2, EndReason::Ttl)]);
        assert_eq!(check(&story.evidence()).len(), 1, "decided twice");
    }

    #[test]
    fn a_session_that_queues_after_its_end_is_found() {
        let mut story = a_holder_and_a_waiter();
        story.log(4, [queued("a", 3, 1)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }
}
