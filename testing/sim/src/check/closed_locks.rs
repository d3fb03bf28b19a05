//! Closed doors: under a frozen prefix nothing is granted, nor after a hold that ended against its holder's will
//! for as long as its lock delay says. Neither lasts longer than it should.

use std::collections::BTreeMap;

use holdfast_core::command::{Action, Mode};
use holdfast_core::{EndReason, Event, LockName, LogicalTime, Span};

use super::evidence::Evidence;
use super::expiry::leaderless_us;
use super::findings::{At, Findings};
use super::promises::{ExpiryBound, Promises};
use crate::history::{History, RealTime, Violation};

/// Something that is closed until a logical time, since a real one, for a while.
struct Closed {
    until: LogicalTime,
    since: RealTime,
    span: Span,
}

pub fn check(history: &Evidence<'_>, promises: &Promises) -> Vec<Violation> {
    let mut findings = Findings::of("closed-locks");
    let mut frozen: BTreeMap<&str, Closed> = BTreeMap::new();
    let mut delayed: BTreeMap<&LockName, Closed> = BTreeMap::new();
    let late = |what: &str, closed: &Closed, at, findings: &mut Findings| {
        closed.not_late(what, at, history, promises, findings);
    };
    for entry in history.log() {
        let (index, now, at) = (entry.index.0, entry.logical, entry.first_applied);
        let mut thawed_by_hand = None;
        let mut reopened_by_hand = None;
        for event in &entry.events {
            match event {
                Event::Intervened(intervention) => match &intervention.action {
                    Action::Freeze { prefix, ttl } => {
                        let closed = Closed { until: now.after(*ttl), since: at, span: *ttl };
                        frozen.insert(prefix, closed);
                    }
                    Action::Thaw { prefix } => thawed_by_hand = Some(&**prefix),
                    Action::Reopen { name } => reopened_by_hand = Some(name),
                    _ => {}
                },
                Event::Thawed { prefix } => {
                    let Some(freeze) = frozen.remove(prefix.as_str()) else {
                        findings.add(format!("{prefix:?} thawed at index {index} unfrozen"));
                        continue;
                    };
                    if thawed_by_hand != Some(prefix) && now < freeze.until {
                        let until = freeze.until;
                        findings.add(format!("{prefix:?} thawed at {now}, before {until}"));
                    }
                    late(prefix, &freeze, at, &mut findings);
                }
                Event::HoldEnded { name, session, request, reason, .. } => {
                    let terms = history.asked(*session, *request).and_then(|it| it.input.terms());
                    if let Some(span) = terms.and_then(|terms| terms.lock_delay)
                        && *reason != EndReason::Transferred
                    {
                        let closed = Closed { until: now.after(span), since: at, span };
                        let is_longer =
                            delayed.get(name).is_none_or(|before| before.until < closed.until);
                        if is_longer {
                            delayed.insert(name, closed);
                        }
                    }
                }
                Event::Reopened { name } => {
                    let Some(delay) = delayed.remove(name) else {
                        if history.beginning.is_some() {
                            // The delays of holds that ended with the cluster before are not known.
                            continue;
                        }
                        findings.add(format!("{name} was reopened at index {index} unclosed"));
                        continue;
                    };
                    if reopened_by_hand != Some(name) && now < delay.until {
                        findings.add(format!("{name} opened at {now}, before {}", delay.until));
                    }
                    late(name, &delay, at, &mut findings);
                }
                Event::Granted { name, .. }
                | Event::Converted { name, mode: Mode::Exclusive, .. } => {
                    if let Some(delay) = delayed.get(name) {
                        findings.add(format!(
                            "{name} was granted at index {index}, though a lock delay closes it until {}",
                            delay.until
                        ));
                    }
                    let freeze = frozen.iter().find(|(prefix, _)| name.starts_with(**prefix));
                    if let Some((prefix, freeze)) = freeze {
                        findings.add(format!(
                            "{name} was granted at index {index}, though {prefix:?} is frozen until {}",
                            freeze.until
                        ));
                    }
                }
                _ => {}
            }
        }
    }
    for (prefix, freeze) in &frozen {
        late(prefix, freeze, history.end, &mut findings);
    }
    for (name, delay) in &delayed {
        late(name, delay, history.end, &mut findings);
    }
    findings.into_violations()
}

impl Closed {
    fn not_late(
        &self,
        what: &str,
        at: RealTime,
        history: &History,
        promises: &Promises,
        findings: &mut Findings,
    ) {
        let Some(ExpiryBound { grace_ms, tick_ms, .. }) = promises.expiry_bound else { return };
        if history.rates_broken {
            return;
        }
        let allowed_us = promises.longest_us(self.span.as_ms() + grace_ms + 2 * tick_ms)
            + leaderless_us(history, self.since, at);
        if at.0 > self.since.0.saturating_add(allowed_us) {
            findings.add(format!(
                "{what} was to be closed for {} ms from {} on, and still was at {}",
                self.span.as_ms(),
                At(self.since),
                At(at)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::*;
    use crate::check::{ExpiryBound, Promises};
    use crate::history::{Input, LeaderSpan};
    use holdfast_core::command::Action;
    use holdfast_core::{EndReason, Event, Span};
    use holdfast_replica::NodeId;

    fn found(story: &mut TestHistory) -> usize {
        let span = LeaderSpan { node: NodeId(1), term: 1, from: ms(0), to: ms(9_000) };
        story.history.leaders.push(span);
        let bound = ExpiryBound { grace_ms: 300, tick_ms: 50, delivery_ms: 0 };
        let promises = Promises { expiry_bound: Some(bound), ..Promises::default() };
        check(&story.evidence(), &promises).len()
    }

    fn freeze() -> Event {
        intervened(Action::Freeze { prefix: "a".into(), ttl: Span::from_ms(100) })
    }

    fn thawed() -> Event {
        Event::Thawed { prefix: "a".into() }
    }

    #[test]
    fn nothing_is_granted_under_a_frozen_prefix() {
        for (lock, violations) in [("b", 0), ("ab", 1)] {
            let mut story = TestHistory::default();
            story.log(1, [freeze(), granted(lock, 1, 1, 1)]);
            story.log(101, [thawed(), granted("a", 1, 2, 2)]);
            assert_eq!(found(&mut story), violations, "{lock}");
        }
    }

    #[test]
    fn a_freeze_ends_in_time_unless_by_hand() {
        for (end, violations) in [(100, 1), (101, 0), (506, 0), (510, 1)] {
            let mut story = TestHistory::default();
            story.log(1, [freeze()]);
            story.log(end, [thawed()]);
            assert_eq!(found(&mut story), violations, "{end}");
        }
        let mut story = TestHistory::default();
        story.log(1, [freeze()]);
        story.log(2, [intervened(Action::Thaw { prefix: "a".into() }), thawed()]);
        assert_eq!(found(&mut story), 0);
    }

    /// A hold with a lock delay of 100 ms ends at 10, for this reason; the next grant is at `next`.
    fn delayed(reason: EndReason, opens: Option<u64>, next: u64) -> TestHistory {
        let mut story = TestHistory::default();
        let Input::Take(mut asked) = take(&["a"]) else { unreachable!() };
        asked.terms.lock_delay = Some(Span::from_ms(100));
        story.ask(1, 1, Input::Take(asked));
        story.log(10, [granted("a", 1, 1, 1), hold_ended_by("a", 1, 1, 1, reason)]);
        if let Some(opens) = opens {
            story.log(opens, [Event::Reopened { name: name("a") }]);
        }
        story.log(next, [granted("a", 2, 1, 2)]);
        story
    }

    #[test]
    fn a_lock_delay_keeps_the_door_closed_and_not_for_longer() {
        assert_eq!(found(&mut delayed(EndReason::Ttl, Some(110), 111)), 0);
        assert_eq!(found(&mut delayed(EndReason::Transferred, None, 11)), 0);
        assert_eq!(found(&mut delayed(EndReason::Broken, None, 50)), 1);
        assert_eq!(found(&mut delayed(EndReason::Ttl, Some(109), 111)), 1);
        assert_eq!(found(&mut delayed(EndReason::Ttl, Some(630), 631)), 1);
    }
}
