//! Exclusion: at any log index a name has one exclusive holder, or readers only, or no more permits out than it
//! has. An operator who lowers their number takes none away; but none is granted until enough have come back.

use std::collections::BTreeMap;

use holdfast_core::command::{Action, Mode};
use holdfast_core::{Event, LockName};

use super::evidence::Evidence;
use super::findings::{Findings, Who};
use super::holders::{Holder, Holders};
use crate::history::Violation;

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("exclusion");
    let mut holders = Holders::default();
    let mut permits: BTreeMap<&LockName, u32> = BTreeMap::new();
    for entry in history.log() {
        let index = entry.index.0;
        for event in &entry.events {
            match event {
                Event::Granted { name, session, mode, token, .. } => {
                    let limit = permits.get(name).copied();
                    if let Some(other) = in_the_way(holders.of(name), *mode, limit) {
                        findings.add(format!(
                            "{name} was granted ({mode:?}) to {} under {token} at index {index} while {} \
                             held it under {} ({:?})",
                            Who(*session),
                            Who(other.session),
                            other.token,
                            other.mode,
                        ));
                    }
                }
                Event::Converted { name, session, request, mode, token, .. } => {
                    if holders.find(name, *session, *request).is_none() {
                        findings.add(format!(
                            "{} converted {name} at index {index} without holding it",
                            Who(*session)
                        ));
                    }
                    if *mode == Mode::Exclusive && holders.of(name).len() > 1 {
                        findings.add(format!(
                            "{} became the writer of {name} under {token} at index {index}, beside {} \
                             other holders",
                            Who(*session),
                            holders.of(name).len() - 1,
                        ));
                    }
                }
                Event::Released { name, session, request, token, .. }
                | Event::HoldEnded { name, session, request, token, .. } => {
                    let held = holders.find(name, *session, *request);
                    if held.is_none_or(|held| held.token != *token) {
                        findings.add(format!(
                            "a hold of {name} by {} under {token} ended at index {index}, and there was no \
                             such hold",
                            Who(*session),
                        ));
                    }
                }
                Event::Intervened(intervention) => {
                    if let Action::SetPermits { name, limit } = &intervention.action {
                        match limit {
                            Some(limit) => drop(permits.insert(name, *limit)),
                            None => drop(permits.remove(name)),
                        }
                    }
                }
                _ => {}
            }
            holders.follow(event);
        }
    }
    findings.into_violations()
}

/// With whom one more holder in this mode cannot be together.
fn in_the_way(holders: &[Holder], mode: Mode, limit_set: Option<u32>) -> Option<&Holder> {
    let like = |holder: &&Holder| {
        matches!(
            (holder.mode, mode),
            (Mode::Shared, Mode::Shared) | (Mode::Permit { .. }, Mode::Permit { .. })
        )
    };
    let other = holders.iter().find(|holder| !like(holder));
    match mode {
        Mode::Permit { limit: stated } => {
            let all_out = holders.len() >= limit_set.unwrap_or(stated) as usize;
            other.or_else(|| holders.first().filter(|_| all_out))
        }
        Mode::Exclusive | Mode::Shared => other,
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::*;
    use holdfast_core::command::Mode;

    #[test]
    fn one_holder_after_another_is_fine() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        story.log(2, [released("a", 1, 1, 1), granted("a", 2, 1, 2)]);
        story.log(3, [hold_ended("a", 2, 1, 2), granted("b", 2, 2, 3)]);
        assert_eq!(check(&story.evidence()), []);
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let mut story = TestHistory::default();
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
        let mut story = TestHistory::default();
        story.applied(1, 5, [granted("a", 1, 1, 1)]);
        story.applied(2, 5, [granted("a", 2, 1, 1)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn the_end_of_a_hold_that_never_was_is_found() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 1, 1, 1)]);
        story.log(2, [released("a", 1, 1, 9)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn readers_are_together_and_alone() {
        let mut story = TestHistory::default();
        story.log(
            1,
            [granted_as("a", 1, 1, 1, Mode::Shared), granted_as("a", 2, 1, 1, Mode::Shared)],
        );
        assert_eq!(check(&story.evidence()), []);
        story.log(2, [granted("a", 3, 1, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_reader_beside_a_writer_and_a_writer_among_readers_are_found() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 1, 1, 1), granted_as("a", 2, 1, 2, Mode::Shared)]);
        story.log(
            2,
            [granted_as("b", 1, 2, 3, Mode::Shared), granted_as("b", 2, 2, 3, Mode::Shared)],
        );
        story.log(3, [converted("b", 1, 2, 4, Mode::Exclusive)]);
        assert_eq!(check(&story.evidence()).len(), 2);
    }

    #[test]
    fn no_more_permits_are_out_than_there_are() {
        let permit = Mode::Permit { limit: 2 };
        let mut story = TestHistory::default();
        story.log(1, [granted_as("a", 1, 1, 1, permit), granted_as("a", 2, 1, 2, permit)]);
        story.log(2, [set_permits("a", Some(1)), released("a", 1, 1, 1)]);
        assert_eq!(check(&story.evidence()), []);
        story.log(3, [granted_as("a", 3, 1, 3, permit)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }
}
