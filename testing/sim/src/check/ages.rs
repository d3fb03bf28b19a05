//! Ages: who asks by *wait-die* never waits for an older holder, and who asks by *wound-wait* never for a
//! younger one whose hold may be taken away, unless that one had waited for it and got it just now. No holder is
//! wounded for what could not be granted anyway, because it is frozen or closed, and of permits only as many
//! as it takes are taken away: neither is judged here. An actor is as old as the time at which it says that it
//! first asked, or else as its session; of two that are equally old the ids decide. A time that was in the future
//! when the request came counts as that moment: a client may have it from a cluster that was lost, whose time was
//! ahead of the backup's.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::command::{Action, Intervention, Mode, Policy};
use holdfast_core::{ActorId, Event, LockName, LogicalTime, RequestId, SessionId};

use super::evidence::Evidence;
use super::findings::{Findings, Which};
use super::holders::{Holder, Holders};
use crate::history::{Input, Take, Violation};

/// The lower, the older.
type Age = (LogicalTime, SessionId, ActorId);

pub fn check(history: &Evidence<'_>) -> Vec<Violation> {
    let mut findings = Findings::of("ages");
    let mut ages = Ages::default();
    let mut holders = Holders::default();
    let mut shut = Shut::default();
    for entry in history.log() {
        let mut granted_now: BTreeSet<(SessionId, RequestId)> = BTreeSet::new();
        for event in &entry.events {
            ages.follow(event, entry.logical);
            match event {
                Event::Granted { session, request, .. } => {
                    granted_now.insert((*session, *request));
                }
                Event::Queued { name, session, request, mode, .. } => {
                    let Some(asks) = taken(history, *session, *request) else { continue };
                    let Some(own) = ages.of(*session, *request, asks) else { continue };
                    for holder in holders.of(name).iter().filter(|it| conflicts(it.mode, *mode)) {
                        let Holder { session: other, request: by, .. } = holder;
                        let Some(holds) = taken(history, *other, *by) else { continue };
                        let Some(others) = ages.of(*other, *by, holds) else { continue };
                        let same_actor = (own.1, own.2) == (others.1, others.2);
                        let wrong = match asks.terms.policy {
                            Policy::WaitDie => others < own,
                            Policy::WoundWait => {
                                let just_now = granted_now.contains(&(*other, *by));
                                let permits = matches!(mode, Mode::Permit { .. });
                                let judged = !just_now && !permits && !shut.any_of(asks);
                                own < others && holds.terms.preemptible && !same_actor && judged
                            }
                            Policy::Detect | Policy::Wait => false,
                        };
                        if wrong {
                            findings.add(format!(
                                "{} waits for {name} by {:?} at index {}, and it is held by {}",
                                Which(*session, *request),
                                asks.terms.policy,
                                entry.index.0,
                                Which(*other, *by),
                            ));
                        }
                    }
                }
                _ => {}
            }
            shut.follow(history, event);
            holders.follow(event);
        }
    }
    findings.into_violations()
}

/// When sessions began, and when the table took in each acquire.
#[derive(Default)]
struct Ages {
    opened: BTreeMap<SessionId, LogicalTime>,
    taken_in: BTreeMap<(SessionId, RequestId), LogicalTime>,
}

impl Ages {
    fn follow(&mut self, event: &Event, at: LogicalTime) {
        match event {
            Event::SessionOpened { session, .. } => {
                self.opened.insert(*session, at);
            }
            Event::Queued { session, request, .. } | Event::Granted { session, request, .. } => {
                self.taken_in.entry((*session, *request)).or_insert(at);
            }
            _ => {}
        }
    }

    fn of(&self, session: SessionId, request: RequestId, take: &Take) -> Option<Age> {
        let since = take.terms.since.or_else(|| self.opened.get(&session).copied())?;
        let taken_in = *self.taken_in.get(&(session, request))?;
        Some((since.min(taken_in), session, take.actor))
    }
}

/// What is frozen or closed by a lock delay.
#[derive(Default)]
struct Shut {
    prefixes: BTreeSet<String>,
    closed: BTreeSet<LockName>,
}

impl Shut {
    fn follow(&mut self, history: &Evidence<'_>, event: &Event) {
        match event {
            Event::Intervened(Intervention { action: Action::Freeze { prefix, .. }, .. }) => {
                self.prefixes.insert(prefix.to_string());
            }
            Event::Thawed { prefix } => {
                self.prefixes.remove(prefix);
            }
            Event::HoldEnded { name, session, request, .. } => {
                let ended = taken(history, *session, *request);
                if ended.is_none_or(|take| take.terms.lock_delay.is_some()) {
                    self.closed.insert(name.clone());
                }
            }
            Event::Reopened { name } => {
                self.closed.remove(name);
            }
            _ => {}
        }
    }

    fn any_of(&self, take: &Take) -> bool {
        take.members.iter().any(|member| {
            self.closed.contains(&member.name)
                || self.prefixes.iter().any(|prefix| member.name.starts_with(prefix.as_str()))
        })
    }
}

fn taken<'a>(history: &Evidence<'a>, session: SessionId, request: RequestId) -> Option<&'a Take> {
    match &history.asked(session, request)?.input {
        Input::Take(take) => Some(take),
        _ => None,
    }
}

fn conflicts(one: Mode, other: Mode) -> bool {
    (one, other) != (Mode::Shared, Mode::Shared)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::*;
    use crate::history::Input;
    use holdfast_core::LogicalTime;
    use holdfast_core::command::Policy;

    /// Session 1 is older than session 2. One of them holds a; the other asks for it.
    fn found(asks: u128, policy: Policy, preemptible: bool) -> usize {
        let mut story = TestHistory::default();
        story.log(1, [opened(1)]);
        story.log(2, [opened(2)]);
        for session in [1, 2] {
            let Input::Take(mut asked) = take(&["a"]) else { unreachable!() };
            asked.terms.policy = policy;
            asked.terms.preemptible = preemptible;
            story.ask(session, 1, Input::Take(asked));
        }
        story.log(3, [granted("a", 3 - asks, 1, 1)]);
        story.log(4, [queued("a", asks, 1)]);
        check(&story.evidence()).len()
    }

    #[test]
    fn by_wait_die_only_the_older_one_waits() {
        assert_eq!(found(1, Policy::WaitDie, false), 0);
        assert_eq!(found(2, Policy::WaitDie, false), 1);
    }

    /// Both sessions say that they first asked at 50, as a client does that has this time from a cluster before a
    /// restore. Session 2 asks at the given time and holds a at 58; session 1, which is older by its id, asks at 60.
    fn found_if_asked_at(asked_at: u64) -> usize {
        let mut story = TestHistory::default();
        story.log(1, [opened(1), opened(2)]);
        for session in [1, 2] {
            let Input::Take(mut asked) = take(&["a"]) else { unreachable!() };
            asked.terms.policy = Policy::WoundWait;
            asked.terms.preemptible = true;
            asked.terms.since = Some(LogicalTime::from_ms(50));
            story.ask(session, 1, Input::Take(asked));
        }
        story.log(asked_at, [queued("a", 2, 1)]);
        story.log(58, [granted("a", 2, 1, 1)]);
        story.log(60, [queued("a", 1, 1)]);
        check(&story.evidence()).len()
    }

    #[test]
    fn a_time_in_the_future_counts_as_the_time_at_which_the_request_came() {
        assert_eq!(found_if_asked_at(3), 0);
        assert_eq!(found_if_asked_at(55), 1);
    }

    #[test]
    fn by_wound_wait_the_older_one_waits_only_for_what_cannot_be_taken() {
        assert_eq!(found(1, Policy::WoundWait, false), 0);
        assert_eq!(found(1, Policy::WoundWait, true), 1);
        assert_eq!(found(2, Policy::WoundWait, true), 0);
        assert_eq!(found(2, Policy::Detect, true), 0);
    }
}
