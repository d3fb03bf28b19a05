//! Exclusion: at any log index a name has at most one exclusive holder.

use std::collections::BTreeMap;

use holdfast_core::{Event, FenceToken, LockName, SessionId};

use super::evidence::Evidence;
use super::words::{Findings, Who};
use crate::history::Violation;

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("exclusion");
    let mut holders: BTreeMap<&LockName, (SessionId, FenceToken)> = BTreeMap::new();
    for entry in history.log() {
        for event in &entry.events {
            match event {
                Event::Granted { name, session, token, .. } => {
                    let before = holders.insert(name, (*session, *token));
                    if let Some((other, others_token)) = before {
                        findings.add(format!(
                            "{name} was granted to {} under {token} at index {} while {} held it under \
                             {others_token}",
                            Who(*session),
                            entry.index.0,
                            Who(other),
                        ));
                    }
                }
                Event::Released { name, session, token, .. }
                | Event::HoldEnded { name, session, token, .. } => {
                    if holders.get(name) == Some(&(*session, *token)) {
                        holders.remove(name);
                    } else {
                        findings.add(format!(
                            "a hold of {name} by {} under {token} ended at index {}, and there was no \
                             such hold",
                            Who(*session),
                            entry.index.0,
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
    use crate::check::story::{Story, granted, hold_ended, released};

    #[test]
    fn one_holder_after_another_is_fine() {
        let mut story = Story::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        story.log(2, [released("a", 1, 1), granted("a", 2, 1, 2)]);
        story.log(3, [hold_ended("a", 2, 1, 2), granted("b", 2, 2, 3)]);
        assert_eq!(check(&story.evidence()), []);
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let mut story = Story::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        story.log(2, [granted("a", 2, 1, 2)]);
        let found = check(&story.evidence());
        assert_eq!(found.len(), 1);
        assert!(
            found[0].what.contains("session 2 under 2 at index 2 while session 1"),
            "{found:?}"
        );
    }

    #[test]
    fn replicas_that_each_grant_to_another_are_found() {
        let mut story = Story::default();
        story.applied(1, 5, [granted("a", 1, 1, 1)]);
        story.applied(2, 5, [granted("a", 2, 1, 1)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn the_end_of_a_hold_that_never_was_is_found() {
        let mut story = Story::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        story.log(2, [released("a", 1, 9)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }
}
