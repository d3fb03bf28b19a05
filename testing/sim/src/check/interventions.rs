//! Interventions do what they say, and to whom they say: only what was meant is broken, killed or handed over, nothing
//! is without a request for it, and each is carried out once. (Each has a reason of its own.)

use std::collections::BTreeSet;

use holdfast_core::command::Action;
use holdfast_core::{EndReason, Event, FenceToken, LockName, SessionId};

use super::evidence::Evidence;
use super::findings::{Findings, Who};
use crate::history::{Input, Violation};

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("interventions");
    let handed_over: BTreeSet<(SessionId, &LockName, FenceToken)> = history
        .operations
        .iter()
        .filter_map(|operation| match &operation.input {
            Input::Transfer { name, token, .. } => Some((operation.session, name, *token)),
            _ => None,
        })
        .collect();
    let mut reasons = BTreeSet::new();
    let mut killed = BTreeSet::new();
    // A large session has an event of the decision, and another when all that it had has ended.
    let mut ended = BTreeSet::new();
    // Sessions that are open, and those of them that a change of the policy may have ended.
    let mut open = BTreeSet::new();
    let mut ended_by_policy: BTreeSet<SessionId> = BTreeSet::new();
    for entry in history.log() {
        let index = entry.index.0;
        let mut last: Option<&Action> = None;
        for event in &entry.events {
            match event {
                // Also those without a principal: a later connection may show one.
                Event::SessionOpened { session, .. } => {
                    open.insert(*session);
                }
                Event::AccessChanged { change, .. } if change.end_sessions => {
                    ended_by_policy.extend(&open);
                }
                Event::PolicyAdopted { .. } => ended_by_policy.extend(&open),
                // A session that is ending gets nothing more, so the policy did not end this one.
                Event::Granted { session, .. }
                | Event::Queued { session, .. }
                | Event::Converted { session, .. } => {
                    ended_by_policy.remove(session);
                }
                Event::Intervened(intervention) => {
                    last = Some(&intervention.action);
                    if let Action::KillSession { session } = &intervention.action {
                        killed.insert(*session);
                    }
                    if !reasons.insert(&intervention.reason) {
                        let again = format!("at index {index} it is done again: {intervention:?}");
                        findings.add(again);
                    }
                }
                Event::HoldEnded { name, session, token, reason, .. } => {
                    let meant = match (reason, last) {
                        (EndReason::Broken, Some(Action::Break { name: meant, token: under })) => {
                            meant == name && under.is_none_or(|under| under == *token)
                        }
                        (
                            EndReason::Transferred,
                            Some(Action::Transfer { name: meant, token: under, .. }),
                        ) if (meant, under) == (name, token) => true,
                        (EndReason::Transferred, _) => {
                            handed_over.contains(&(*session, name, *token))
                        }
                        (EndReason::Broken, _) => false,
                        _ => true,
                    };
                    if !meant {
                        findings.add(format!(
                            "the hold of {name} by {} under {token} ended ({reason:?}) at index {index}, and \
                             no request meant it: {last:?}",
                            Who(*session)
                        ));
                    }
                }
                Event::SessionEnding { session, public, reason }
                | Event::SessionEnded { session, public, reason } => {
                    open.remove(session);
                    if !ended.insert(*session) {
                        continue;
                    }
                    let is_meant = ended_by_policy.remove(session) || killed.contains(public);
                    if *reason == EndReason::Killed && !is_meant {
                        findings.add(format!(
                            "{} was killed at index {index}, and no request meant it",
                            Who(*session)
                        ));
                    }
                }
                _ => {}
            }
        }
    }
    findings.into_violations()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::*;
    use holdfast_core::command::Action;
    use holdfast_core::{
        ChangeAccess, EndReason, Event, FenceToken, Principal, PublicSessionId, SessionId,
    };

    fn opened_as_client(session: u128) -> Event {
        let principal = Some(Principal::parse("cert:client-1").unwrap());
        let (session, public) = (SessionId(session), PublicSessionId(session as u64));
        Event::SessionOpened { session, public, owner: Box::default(), principal }
    }

    fn policy_changed(end_sessions: bool) -> Event {
        let (by, changes) = ("cert:root".into(), [].into());
        let change = ChangeAccess { by, identity: None, expected: None, changes, end_sessions };
        Event::AccessChanged { change: Box::new(change), generation: 1 }
    }

    #[test]
    fn only_the_hold_that_was_meant_is_broken() {
        for (token, violations) in [(None, 0), (Some(1), 0), (Some(9), 1)] {
            let mut story = TestHistory::default();
            story.log(1, [granted("a", 1, 1, 1)]);
            let broken = Action::Break { name: name("a"), token: token.map(FenceToken) };
            story.log(2, [intervened(broken), hold_ended_by("a", 1, 1, 1, EndReason::Broken)]);
            assert_eq!(check(&story.evidence()).len(), violations, "{token:?}");
        }
    }

    #[test]
    fn an_intervention_that_is_done_twice_is_found() {
        let mut story = TestHistory::default();
        let freeze = || intervened(Action::Thaw { prefix: "a".into() });
        story.log(1, [freeze()]);
        assert_eq!(check(&story.evidence()), []);
        story.log(2, [freeze()]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn what_is_handed_over_or_killed_by_nobody_is_found() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 1, 1, 1), hold_ended_by("a", 1, 1, 1, EndReason::Transferred)]);
        story.log(2, [ended(1, EndReason::Killed)]);
        assert_eq!(check(&story.evidence()).len(), 2);
    }

    #[test]
    fn a_policy_ends_the_sessions_that_were_open_and_no_later_ones() {
        let mut story = TestHistory::default();
        story.log(1, [opened_as_client(1), opened_as_client(2)]);
        story.log(2, [policy_changed(true), ended(1, EndReason::Killed)]);
        story.log(3, [opened_as_client(3)]);
        story.log(4, [ended(2, EndReason::Killed)]);
        assert_eq!(check(&story.evidence()), []);
        story.log(5, [ended(3, EndReason::Killed)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_large_session_that_is_killed_by_nobody_is_found_once() {
        let mut story = TestHistory::default();
        story.log(1, [opened_as_client(1)]);
        story.log(2, [ending(1, EndReason::Killed)]);
        story.log(3, [ended(1, EndReason::Killed)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_policy_that_ends_no_sessions_kills_none() {
        let mut story = TestHistory::default();
        story.log(1, [opened_as_client(1)]);
        story.log(2, [policy_changed(false), ended(1, EndReason::Killed)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_session_that_goes_on_after_a_policy_was_not_ended_by_it() {
        for goes_on in [granted("a", 1, 1, 1), queued("a", 1, 1)] {
            let mut story = TestHistory::default();
            story.log(1, [opened_as_client(1)]);
            story.log(2, [policy_changed(true)]);
            story.log(3, [goes_on]);
            story.log(4, [ended(1, EndReason::Killed)]);
            assert_eq!(check(&story.evidence()).len(), 1);
        }
    }
}
