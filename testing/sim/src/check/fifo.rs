//! First come, first served: no request is granted what one ahead of it waits for and could not share with it;
//! and no request that did not queue is served before those that did. A conversion goes before all others. A lock
//! that is handed to a chosen one is exempt.

use std::collections::{BTreeMap, VecDeque};

use holdfast_core::command::{Action, Mode};
use holdfast_core::{EndReason, Event, LockName, RequestId, SessionId};

use super::evidence::Evidence;
use super::findings::{Findings, Which};
use super::holders::Holders;
use crate::history::{Input, Violation};

#[derive(Clone, Copy)]
struct Waiter {
    who: (SessionId, RequestId),
    mode: Mode,
}

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("fifo");
    let mut queues: BTreeMap<&LockName, VecDeque<Waiter>> = BTreeMap::new();
    let mut holders = Holders::default();
    let mut permits: BTreeMap<&LockName, u32> = BTreeMap::new();
    for entry in history.log() {
        let index = entry.index.0;
        let mut handed_over = None;
        for event in &entry.events {
            match event {
                Event::Queued { name, session, request, mode, .. } => {
                    let waiter = Waiter { who: (*session, *request), mode: *mode };
                    let asked = history.asked(*session, *request).map(|asked| &asked.input);
                    let queue = queues.entry(name).or_default();
                    match asked {
                        Some(Input::Convert { .. }) => queue.push_front(waiter),
                        _ => queue.push_back(waiter),
                    }
                }
                Event::Granted { name, session, request, mode, .. } => {
                    let who = (*session, *request);
                    let queue = queues.get(name).into_iter().flatten();
                    let ahead = queue.take_while(|waiter| waiter.who != who).copied();
                    let ahead: Vec<Waiter> = ahead.collect();
                    let passed = match mode {
                        Mode::Permit { limit: stated } => {
                            let limit = permits.get(name).unwrap_or(stated);
                            let taken = holders.of(name).len() + ahead.len();
                            let enough = taken < *limit as usize;
                            ahead.iter().find(|other| !enough || !can_share(other.mode, *mode))
                        }
                        _ => ahead.iter().find(|other| !can_share(other.mode, *mode)),
                    };
                    if let Some(passed) = passed
                        && handed_over != Some(name)
                    {
                        findings.add(format!(
                            "{name} was granted to {} at index {index}, past {}, which was before it",
                            Which(*session, *request),
                            Which(passed.who.0, passed.who.1),
                        ));
                    }
                    handed_over = None;
                }
                Event::HoldEnded { name, reason: EndReason::Transferred, .. } => {
                    handed_over = Some(name);
                }
                Event::WaitEnded { names, session, request, .. } => {
                    let who = (*session, *request);
                    for name in names.iter() {
                        let queue = queues.entry(name).or_default();
                        match queue.iter().position(|waiter| waiter.who == who) {
                            Some(place) => drop(queue.remove(place)),
                            None => findings.add(format!(
                                "{} ended a wait for {name} at index {index} that it had not begun",
                                Which(*session, *request),
                            )),
                        }
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

/// Could both hold it, if there are permits enough?
fn can_share(one: Mode, other: Mode) -> bool {
    matches!(
        (one, other),
        (Mode::Shared, Mode::Shared) | (Mode::Permit { .. }, Mode::Permit { .. })
    )
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::*;
    use holdfast_core::command::Mode;
    use holdfast_core::{EndReason, Outcome};

    fn three_waiters() -> TestHistory {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 9, 1, 1)]);
        story.log(2, [queued("a", 1, 1), queued("a", 2, 1), queued("a", 3, 1)]);
        story
    }

    #[test]
    fn the_first_of_those_who_still_wait_is_next() {
        let mut story = three_waiters();
        story.log(3, [wait_ended("a", 1, 1, Outcome::TimedOut)]);
        story.log(4, [granted("a", 2, 1, 2), wait_ended("a", 2, 1, grants("a", 2))]);
        story.log(5, [granted("a", 3, 1, 3), wait_ended("a", 3, 1, grants("a", 3))]);
        assert_eq!(check(&story.evidence()), []);
    }

    #[test]
    fn a_waiter_that_overtakes_is_found() {
        let mut story = three_waiters();
        story.log(3, [granted("a", 2, 1, 2), wait_ended("a", 2, 1, grants("a", 2))]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_newcomer_that_overtakes_the_queue_is_found() {
        let mut story = three_waiters();
        story.log(3, [granted("a", 7, 1, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_wait_that_ends_twice_is_found() {
        let mut story = three_waiters();
        story.log(3, [wait_ended("a", 1, 1, Outcome::TimedOut)]);
        story.log(4, [wait_ended("a", 1, 1, Outcome::Cancelled)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn a_reader_that_overtakes_a_writer_is_found() {
        let mut story = TestHistory::default();
        story.log(1, [granted_as("a", 9, 1, 1, Mode::Shared), queued("a", 1, 1)]);
        story.log(2, [granted_as("a", 2, 1, 1, Mode::Shared)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn readers_may_pass_readers_and_a_chosen_one_everybody() {
        let mut story = TestHistory::default();
        story.log(1, [granted("a", 9, 1, 1)]);
        story.log(2, [queued_as("a", 1, 1, Mode::Shared), queued_as("a", 2, 1, Mode::Shared)]);
        story.log(3, [released("a", 9, 1, 1), granted_as("a", 2, 1, 2, Mode::Shared)]);
        assert_eq!(check(&story.evidence()), []);
        let mut story = three_waiters();
        let handed_over = hold_ended_by("a", 9, 1, 1, EndReason::Transferred);
        story.log(3, [handed_over, granted("a", 3, 1, 2), wait_ended("a", 3, 1, grants("a", 2))]);
        assert_eq!(check(&story.evidence()), []);
    }

    #[test]
    fn a_permit_that_those_ahead_leave_over_may_be_taken() {
        for (limit, violations) in [(3, 0), (2, 1)] {
            let permit = Mode::Permit { limit };
            let mut story = TestHistory::default();
            story.log(1, [granted_as("a", 9, 1, 1, permit), queued_as("a", 1, 1, permit)]);
            story.log(2, [granted_as("a", 2, 1, 2, permit)]);
            assert_eq!(check(&story.evidence()).len(), violations, "{limit}");
        }
    }
}
