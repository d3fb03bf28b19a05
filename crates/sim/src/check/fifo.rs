//! First come, first served: a lock goes to the earliest of those who wait for it, and nobody who did not
//! queue gets it while somebody waits.

use std::collections::{BTreeMap, VecDeque};

use holdfast_core::{Event, LockName, RequestId, SessionId};

use super::evidence::Evidence;
use super::words::{Findings, Which};
use crate::history::Violation;

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("fifo");
    let mut queues: BTreeMap<&LockName, VecDeque<(SessionId, RequestId)>> = BTreeMap::new();
    for entry in history.log() {
        let index = entry.index.0;
        for event in &entry.events {
            match event {
                Event::Queued { name, session, request, .. } => {
                    queues.entry(name).or_default().push_back((*session, *request));
                }
                Event::Granted { name, session, request, .. } => {
                    let first = queues.get(name).and_then(|queue| queue.front());
                    if let Some((waiting, since)) = first
                        && (*waiting, *since) != (*session, *request)
                    {
                        findings.add(format!(
                            "{name} was granted to {} at index {index}, past {}, which was first in line",
                            Which(*session, *request),
                            Which(*waiting, *since),
                        ));
                    }
                }
                Event::WaitEnded { names, session, request, .. } => {
                    for name in names.iter() {
                        let queue = queues.entry(name).or_default();
                        match queue.iter().position(|waiter| *waiter == (*session, *request)) {
                            Some(place) => drop(queue.remove(place)),
                            None => findings.add(format!(
                                "{} ended a wait for {name} at index {index} that it had not begun",
                                Which(*session, *request),
                            )),
                        }
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
    use crate::check::story::{Story, granted, grants, queued, wait_ended};
    use holdfast_core::Outcome;

    fn three_waiters() -> Story {
        let mut story = Story::default();
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
}
