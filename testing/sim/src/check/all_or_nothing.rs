//! All or nothing: what was asked for together is granted together, in one step, and waits together. No part of
//! an acquire-all is ever held or left standing in a queue.

use std::collections::BTreeSet;

use holdfast_core::{Event, LockName, RequestId, SessionId};

use super::evidence::Evidence;
use super::findings::{Findings, Which};
use crate::history::{Input, Violation};

/// Which of its names a step of a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Granted,
    Queued,
}

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("all-or-nothing");
    for entry in history.log() {
        let mut steps: Vec<(Step, SessionId, RequestId, BTreeSet<&LockName>)> = Vec::new();
        for event in &entry.events {
            let (step, name, session, request) = match event {
                Event::Granted { name, session, request, .. } => {
                    (Step::Granted, name, *session, *request)
                }
                Event::Queued { name, session, request, .. } => {
                    (Step::Queued, name, *session, *request)
                }
                _ => continue,
            };
            match steps.last_mut() {
                Some((last, by, under, names))
                    if (*last, *by, *under) == (step, session, request) =>
                {
                    names.insert(name);
                }
                _ => steps.push((step, session, request, BTreeSet::from([name]))),
            }
        }
        for (step, session, request, names) in steps {
            let asked = history.asked(session, request).map(|asked| &asked.input);
            let Some(input @ Input::Take(_)) = asked else { continue };
            let wanted: BTreeSet<&LockName> = input.acquires().collect();
            if names != wanted {
                findings.add(format!(
                    "{} asked for {wanted:?} together, and was {step:?} for {names:?} at index {}",
                    Which(session, request),
                    entry.index.0
                ));
            }
        }
        for event in &entry.events {
            let Event::WaitEnded { names, session, request, .. } = event else { continue };
            let asked = history.asked(*session, *request).map(|asked| &asked.input);
            let Some(input @ Input::Take(_)) = asked else { continue };
            let (left, wanted): (BTreeSet<&LockName>, BTreeSet<&LockName>) =
                (names.iter().collect(), input.acquires().collect());
            if left != wanted {
                findings.add(format!(
                    "{} asked for {wanted:?} together, and left the queues of {left:?} at index {}",
                    Which(*session, *request),
                    entry.index.0
                ));
            }
        }
    }
    findings.into_violations()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::*;
    use holdfast_core::Outcome;

    fn asked() -> TestHistory {
        let mut story = TestHistory::default();
        story.ask(1, 1, take(&["a", "b"]));
        story
    }

    #[test]
    fn what_is_granted_and_waits_together_is_fine() {
        let mut story = asked();
        story.log(1, [queued("a", 1, 1), queued("b", 1, 1), granted("c", 2, 1, 1)]);
        story.log(2, [granted("a", 1, 1, 2), granted("b", 1, 1, 3)]);
        assert_eq!(check(&story.evidence()), []);
    }

    #[test]
    fn a_part_that_is_granted_is_found_also_if_the_rest_follows() {
        let mut story = asked();
        story.log(1, [granted("a", 1, 1, 2)]);
        story.log(2, [granted("b", 1, 1, 3)]);
        assert_eq!(check(&story.evidence()).len(), 2);
    }

    #[test]
    fn a_place_that_is_left_behind_is_found() {
        let mut story = asked();
        story.log(1, [queued("a", 1, 1), queued("b", 1, 1)]);
        story.log(2, [wait_ended("a", 1, 1, Outcome::TimedOut)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }
}
