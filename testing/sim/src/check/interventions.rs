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
    // A session may end some entries after the one that decides it.
    let mut killed = BTreeSet::new();
    let mut policy_ends_sessions = false;
    for entry in history.log() {
        let index = entry.index.0;
        let mut last: Option<&Action> = None;
        for event in &entry.events {
            match event {
                Event::AccessChanged { change, .. } => policy_ends_sessions |= change.end_sessions,
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
                Event::SessionEnded { session, public, reason: EndReason::Killed }
                    if !killed.contains(public) && !policy_ends_sessions =>
                {
                    findings.add(format!(
                        "{} was killed at index {index}, and no request meant it",
                        Who(*session)
                    ));
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
    use holdfast_core::{EndReason, FenceToken};

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
}
