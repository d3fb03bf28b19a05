//! Deadlocks: after no entry of the log is there a cycle of waits that were all to be refused rather than close
//! one. The graph is built from the events, as simply as can be: a session that waits for an exclusive or a
//! shared hold waits for every holder and every waiter ahead with which it could not share, and is stuck if one of them
//! is; a session that waits for a permit is stuck if as many are stuck as there are permits.
//!
//! The searches of one entry share a number of steps. An entry that has used them up queues what follows without a search,
//! as it says. What it queued so may close a cycle, and only that: a wait that was queued before the entry's last refusal
//! as a deadlock had its search, and so has every wait of later entries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdfast_core::command::{Action, Mode, Policy};
use holdfast_core::{ActorId, EndReason, Event, LockName, Outcome, RequestId, SessionId};

use super::evidence::Evidence;
use super::findings::{Findings, Who};
use super::holders::Holders;
use crate::history::{Input, Violation};

type Actor = (SessionId, ActorId);

struct Waiter {
    who: (SessionId, RequestId),
    actor: Actor,
    mode: Mode,
    /// It holds what it waits for.
    converts: bool,
    /// It would rather be refused than wait for ever, and the search for that was made.
    looks: bool,
}

type Queues<'a> = BTreeMap<&'a LockName, VecDeque<Waiter>>;

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("deadlock");
    let mut queues: Queues<'_> = BTreeMap::new();
    let mut holders = Holders::default();
    let mut permits: Permits<'_> = BTreeMap::new();
    for entry in history.log() {
        let mut may_close_a_cycle = false;
        // Those queued since the entry was last seen to search.
        let mut maybe_unsearched = BTreeSet::new();
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
                    maybe_unsearched.insert((*session, *request));
                }
                Event::Refused { outcome: Outcome::Deadlock(_), .. } => maybe_unsearched.clear(),
                Event::WaitEnded { names, session, request, .. } => {
                    for name in names.iter() {
                        if let Some(queue) = queues.get_mut(name) {
                            queue.retain(|waiter| waiter.who != (*session, *request));
                        }
                    }
                }
                Event::HoldEnded { reason: EndReason::Transferred, .. } => may_close_a_cycle = true,
                Event::Intervened(intervention) => {
                    if let Action::SetPermits { name, limit } = &intervention.action {
                        match limit {
                            Some(limit) => drop(permits.insert(name, *limit)),
                            None => drop(permits.remove(name)),
                        }
                        may_close_a_cycle = true;
                    }
                }
                _ => {}
            }
        }
        if !may_close_a_cycle {
            continue;
        }
        let mut found = stuck(&queues, &holders, &permits);
        if let Some(those) = &found
            && history.searches_cut.iter().any(|entries| entries.contains(&entry.index))
        {
            for waiter in queues.values_mut().flatten() {
                if maybe_unsearched.contains(&waiter.who) && those.contains_key(&waiter.actor) {
                    waiter.looks = false;
                }
            }
            found = stuck(&queues, &holders, &permits);
        }
        if let Some(stuck) = found {
            let name = |(who, actor): Actor| format!("{}/{}", Who(who), actor.0);
            let mut words = Vec::new();
            for (waiter, obstacles) in &stuck {
                for obstacle in obstacles.iter().filter(|it| it.holds_up(&stuck)) {
                    for other in obstacle.stuck_ones(&stuck) {
                        let lock = obstacle.lock;
                        words.push(format!("{} for {} at {lock}", name(*waiter), name(other)));
                    }
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

/// The numbers that operators have set.
type Permits<'a> = BTreeMap<&'a LockName, u32>;

/// What those who wait wait for.
type Graph<'a> = BTreeMap<Actor, Vec<Obstacle<'a>>>;

struct Obstacle<'a> {
    lock: &'a LockName,
    actors: Vec<Actor>,
    /// So many of them must be stuck for the waiter to be stuck.
    stuck_min: usize,
}

impl Obstacle<'_> {
    fn stuck_ones(&self, stuck: &Graph<'_>) -> impl Iterator<Item = Actor> {
        self.actors.iter().filter(|other| stuck.contains_key(other)).copied()
    }

    fn holds_up(&self, stuck: &Graph<'_>) -> bool {
        self.stuck_ones(stuck).count() >= self.stuck_min
    }
}

/// The actors that wait for one another for ever, if there are any.
fn stuck<'a>(
    queues: &Queues<'a>,
    holders: &Holders<'_>,
    permits: &Permits<'_>,
) -> Option<Graph<'a>> {
    let mut waiting: Graph<'a> = BTreeMap::new();
    for (name, queue) in queues {
        for (place, waiter) in queue.iter().enumerate().filter(|(_, waiter)| waiter.looks) {
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
            let both = held.chain(ahead);
            let in_the_way: Vec<(Actor, Mode)> = both
                .filter(|(_, mode)| !matches!((waiter.mode, *mode), (Mode::Shared, Mode::Shared)))
                .collect();
            // Of permits there may be enough; whatever else is in the way is so alone.
            let (permits_ahead, others): (Vec<_>, Vec<_>) =
                in_the_way.into_iter().partition(|(_, mode)| {
                    matches!((waiter.mode, mode), (Mode::Permit { .. }, Mode::Permit { .. }))
                });
            let permits = match waiter.mode {
                Mode::Permit { limit: stated } => *permits.get(name).unwrap_or(&stated) as usize,
                Mode::Exclusive | Mode::Shared => 1,
            };
            let obstacles = waiting.entry(waiter.actor).or_default();
            for (those, stuck_min) in [(permits_ahead, permits), (others, 1)] {
                let actors = those.into_iter().map(|(actor, _)| actor).collect();
                obstacles.push(Obstacle { lock: name, actors, stuck_min });
            }
        }
    }
    // A session that no waiting one holds up can go on; those left in the end cannot.
    let mut stuck = waiting;
    loop {
        let free: Vec<Actor> = stuck
            .iter()
            .filter(|(_, obstacles)| !obstacles.iter().any(|obstacle| obstacle.holds_up(&stuck)))
            .map(|(actor, _)| *actor)
            .collect();
        if free.is_empty() {
            break;
        }
        for actor in free {
            stuck.remove(&actor);
        }
    }
    (!stuck.is_empty()).then_some(stuck)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::*;
    use crate::history::Input;
    use holdfast_core::LogIndex;
    use holdfast_core::command::{Mode, Policy};

    /// Sessions 1 and 2 hold a and b and wait for b and a, by this policy.
    fn crossed(policy: Policy) -> TestHistory {
        let mut story = TestHistory::default();
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

    /// The last wait of an entry that had used up its steps closes a cycle.
    #[test]
    fn a_wait_that_was_queued_without_a_search_may_close_a_cycle() {
        let cut = LogIndex(3)..=LogIndex(3);
        let refused = || refused_as_deadlock("a", 3, 1);
        let mut story = crossed(Policy::Detect);
        story.log(3, [refused(), queued("a", 2, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1, "no steps were used up");
        story.history.searches_cut.push(cut.clone());
        assert_eq!(check(&story.evidence()), []);
        // A later entry searches again.
        story.ask(1, 3, take(&["c"]));
        story.ask(4, 2, take(&["d"]));
        story.log(4, [granted("c", 4, 1, 3), granted("d", 1, 4, 4), queued("c", 1, 3)]);
        assert_eq!(check(&story.evidence()), []);
        story.log(5, [queued("d", 4, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);

        let mut had_steps = crossed(Policy::Detect);
        had_steps.history.searches_cut.push(cut);
        had_steps.log(3, [queued("a", 2, 2), refused()]);
        assert_eq!(check(&had_steps.evidence()).len(), 1, "the entry searched after it");
    }

    #[test]
    fn who_is_ahead_in_the_queue_counts() {
        // 3 waits for a behind 2; 2 waits for what 3 holds.
        let mut story = TestHistory::default();
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
        let mut story = TestHistory::default();
        story.ask(2, 1, take(&["a"]));
        story.log(1, [granted_as("a", 2, 9, 1, Mode::Shared), queued_as("a", 2, 1, Mode::Shared)]);
        assert_eq!(check(&story.evidence()), []);
    }

    /// Session 1 waits for all of s, behind 9, which has a permit; 2 and 3 wait behind 1 for permits, and 2 for what 3
    /// holds as well. There are two, so 3 has its own.
    #[test]
    fn one_of_two_permits_behind_a_writer_comes_free() {
        let permit = Mode::Permit { limit: 2 };
        let mut story = TestHistory::default();
        for (session, request, lock) in [(1, 1, "s"), (2, 1, "s"), (2, 2, "x"), (3, 2, "s")] {
            story.ask(session, request, take(&[lock]));
        }
        story.log(1, [granted_as("s", 9, 1, 1, permit), granted("x", 3, 1, 2)]);
        story.log(2, [queued("s", 1, 1), queued_as("s", 2, 1, permit), queued("x", 2, 2)]);
        let mut only_one = story.clone();
        story.log(3, [queued_as("s", 3, 2, permit)]);
        assert_eq!(check(&story.evidence()), []);
        only_one.log(3, [set_permits("s", Some(1)), queued_as("s", 3, 2, permit)]);
        assert_eq!(check(&only_one.evidence()).len(), 1);
    }

    /// Sessions 1 and 2 have the two permits of s; 3 holds x and waits for one; 1 waits for x; 2 for a, which 4 holds.
    #[test]
    fn a_knot_around_permits_is_found_and_a_permit_that_comes_free_unties_it() {
        let permit = Mode::Permit { limit: 2 };
        let mut story = TestHistory::default();
        for (session, lock) in [(1, "x"), (2, "a"), (3, "s"), (4, "x")] {
            story.ask(session, 2, take(&[lock]));
        }
        story.log(1, [granted_as("s", 1, 1, 1, permit), granted_as("s", 2, 1, 2, permit)]);
        story.log(2, [granted("x", 3, 1, 3), granted("a", 4, 1, 4)]);
        story.log(3, [queued_as("s", 3, 2, permit), queued("x", 1, 2), queued("a", 2, 2)]);
        assert_eq!(check(&story.evidence()), []);
        let mut one_more = story.clone();
        one_more.log(4, [set_permits("s", Some(3)), queued("x", 4, 2)]);
        assert_eq!(check(&one_more.evidence()), []);
        story.log(4, [queued("x", 4, 2)]);
        assert_eq!(check(&story.evidence()).len(), 1);
    }
}
