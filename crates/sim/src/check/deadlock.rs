//! Deadlocks: after no entry of the log is there a cycle of waits that were all to be refused rather than close
//! one. The graph is worked out anew from the events, as simply as can be: whoever waits for an exclusive or a
//! shared hold waits for every holder and everybody ahead with whom it could not share.
//!
//! Caveat: waits for permits are left out, since one who waits for a permit is stuck only if all holders are.

use std::collections::{BTreeMap, VecDeque};

use holdfast_core::command::{Mode, Policy};
use holdfast_core::{ActorId, EndReason, Event, LockName, RequestId, SessionId};

use super::evidence::Evidence;
use super::holders::Holders;
use super::words::{Findings, Who};
use crate::history::{Input, Violation};

type Actor = (SessionId, ActorId);

struct Waiter {
    who: (SessionId, RequestId),
    actor: Actor,
    mode: Mode,
    /// It holds what it waits for.
    converts: bool,
    /// It would rather be refused than wait for ever.
    looks: bool,
}

type Queues<'a> = BTreeMap<&'a LockName, VecDeque<Waiter>>;

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("deadlock");
    let mut queues: Queues<'_> = BTreeMap::new();
    let mut holders = Holders::default();
    for entry in history.log() {
        let mut may_close_a_cycle = false;
        for event in &entry.events {
            holders.follow(event);
            match event {
                Event::Queued { name, session, request, actor, mode } => {
                    let asked = history.asked(*session, *request).map(|asked| &asked.input);
                    let converts = matches!(asked, Some(Input::Convert { .. }));
                    let policy = asked.and_then(Input::policy);
                    let waiter = Waiter {
                        who: (*session, *request),
                        actor: (*session, *actor),
                        mode: *mode,
                        converts,
                        looks: policy.is_some_and(|policy| policy != Policy::Wait),
                    };
                    let queue = queues.entry(name).or_default();
                    if converts {
                        queue.push_front(waiter);
                    } else {
                        queue.push_back(waiter);
                    }
                    may_close_a_cycle = true;
                }
                Event::WaitEnded { names, session, request, .. } => {
                    for name in names.iter() {
                        if let Some(queue) = queues.get_mut(name) {
                            queue.retain(|waiter| waiter.who != (*session, *request));
                        }
                    }
                }
                Event::HoldEnded { reason: EndReason::Transferred, .. } => may_close_a_cycle = true,
                _ => {}
            }
        }
        if may_close_a_cycle && let Some(stuck) = cycle(&queues, &holders) {
            let name = |(who, actor): Actor| format!("{}/{}", Who(who), actor.0);
            let mut words = Vec::new();
            for (waiter, others) in &stuck {
                for (other, lock) in others.iter().filter(|(other, _)| stuck.contains_key(other)) {
                    words.push(format!("{} for {} at {lock}", name(*waiter), name(*other)));
                }
            }
            findings.add(format!(
                "after index {} these wait for each other for ever: {}",
                entry.index.0,
                words.join(", ")
            ));
            // One is enough: what is stuck stays so for a while.
            break;
        }
    }
    findings.into_violations()
}

/// Who waits for whom, and where.
type Graph<'a> = BTreeMap<Actor, BTreeMap<Actor, &'a LockName>>;

/// Those who wait for one another in a circle, if anybody does.
fn cycle<'a>(queues: &Queues<'a>, holders: &Holders<'_>) -> Option<Graph<'a>> {
    let mut waits_for: Graph<'a> = BTreeMap::new();
    for (name, queue) in queues {
        for (place, waiter) in queue.iter().enumerate() {
            if !waiter.looks || matches!(waiter.mode, Mode::Permit { .. }) {
                continue;
            }
            let conflicts = |mode| mode == Mode::Exclusive || mode != waiter.mode;
            let held = holders
                .of(name)
                .iter()
                .map(|holder| ((holder.session, holder.actor), holder.mode))
                .filter(|(actor, _)| !(waiter.converts && *actor == waiter.actor));
            // Who steps before others and wished to wait whatever comes of it may have closed a cycle by that.
            let ahead = queue
                .iter()
                .take(place)
                .filter(|other| other.looks || !other.converts)
                .map(|other| (other.actor, other.mode));
            let in_the_way = held
                .chain(ahead)
                .filter(|(_, mode)| waiter.mode == Mode::Exclusive || conflicts(*mode))
                .map(|(actor, _)| (actor, *name));
            waits_for.entry(waiter.actor).or_default().extend(in_the_way);
        }
    }
    // Whoever waits for nobody who waits is not stuck; what is left in the end is.
    loop {
        let free: Vec<Actor> = waits_for
            .iter()
            .filter(|(_, others)| !others.keys().any(|other| waits_for.contains_key(other)))
            .map(|(actor, _)| *actor)
            .collect();
        if free.is_empty() {
            break;
        }
        for actor in free {
            waits_for.remove(&actor);
        }
    }
    (!waits_for.is_empty()).then_some(waits_for)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::story::*;
    use crate::history::Input;
    use holdfast_core::command::{Mode, Policy};

    /// Sessions 1 and 2 hold a and b and wait for b and a, by this policy.
    fn crossed(policy: Policy) -> Story {
        let mut story = Story::default();
        for (session, lock) in [(1, "b"), (2, "a")] {
            let Input::Take(mut asked) = take(&[lock]) else { unreachable!() };
            asked.terms.policy = policy;
            story.ask(session, 2, Input::Take(asked));
        }
        story.log(1, [granted("a", 1, 1, 1), granted("b", 2, 1, 2)]);
        story.log(2, [queued("b", 1, 2)]);
        story
    }

    #[test]
    fn a_wait_for_one_who_waits_for_nobody_is_fine() {
        assert_eq!(check(&crossed(Policy::Detect).evidence()), []);
    }

    #[test]
    fn a_cycle_is_found_unless_somebody_wished_it() {
        for (policy, violations) in [(Policy::Detect, 1), (Policy::WaitDie, 1), (Policy::Wait, 0)] {
            let mut story = crossed(policy);
            story.log(3, [queued("a", 2, 2)]);
            assert_eq!(check(&story.evidence()).len(), violations, "{policy:?}");
        }
    }

    #[test]
    fn who_is_ahead_in_the_queue_counts() {
        // 3 waits for a behind 2; 2 waits for what 3 holds.
        let mut story = Story::default();
        for (session, request, lock) in [(2, 1, "a"), (2, 2, "c"), (3, 2, "a")] {
            story.ask(session, request, take(&[lock]));
        }
        story.log(1, [granted("a", 1, 1, 1), granted("c", 3, 1, 2)]);
        story.log(2, [queued("a", 2, 1), queued("a", 3, 2)]);
        assert_eq!(check(&story.evidence()), []);
        story.log(3, [queued("c", 2, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }

    #[test]
    fn readers_do_not_wait_for_each_other() {
        let mut story = Story::default();
        story.ask(2, 1, take(&["a"]));
        story.log(1, [granted_as("a", 2, 9, 1, Mode::Shared), queued_as("a", 2, 1, Mode::Shared)]);
        assert_eq!(check(&story.evidence()), []);
    }
}
