//! Waits: no request is told that its time is up before it is, and none stays in a queue for longer.

use std::collections::BTreeMap;

use holdfast_core::{Event, LockName, Outcome, RequestId, SessionId};

use super::evidence::Evidence;
use super::expiry::leaderless_us;
use super::findings::{At, Findings, Which};
use super::promises::{ExpiryBound, Promises};
use crate::history::{History, RealTime, Violation};

pub fn check(history: &Evidence<'_>, promises: &Promises) -> Vec<Violation> {
    let mut findings = Findings::of("wait-timeouts");
    if history.replicated.is_empty() || history.rates_broken {
        return findings.into_violations();
    }
    let mut waiting: BTreeMap<(SessionId, RequestId), Wait<'_>> = BTreeMap::new();
    for entry in history.log() {
        let at = entry.first_applied;
        for event in &entry.events {
            match event {
                Event::Queued { name, session, request, .. } => {
                    let key = (*session, *request);
                    if let Some(asked) = history.asked(*session, *request)
                        && let Some(wait_ms) = asked.input.wait_ms()
                    {
                        let invoked = asked.invoked;
                        waiting.insert(key, Wait { name, wait_ms, invoked, queued: at });
                    }
                }
                Event::WaitEnded { session, request, outcome, .. } => {
                    let Some(wait) = waiting.remove(&(*session, *request)) else { continue };
                    let which = Which(*session, *request);
                    if *outcome == Outcome::TimedOut {
                        wait.not_early(&which, at, history, promises, &mut findings);
                    }
                    wait.not_late(&which, at, history, promises, &mut findings);
                }
                _ => {}
            }
        }
    }
    for ((session, request), wait) in waiting {
        wait.not_late(&Which(session, request), history.end, history, promises, &mut findings);
    }
    findings.into_violations()
}

struct Wait<'a> {
    name: &'a LockName,
    wait_ms: u64,
    invoked: RealTime,
    queued: RealTime,
}

impl Wait<'_> {
    fn not_early(
        &self,
        which: &Which,
        at: RealTime,
        history: &History,
        promises: &Promises,
        findings: &mut Findings,
    ) {
        if promises.is_early(history, self.invoked, self.wait_ms, at) {
            findings.add(format!(
                "{which} was to wait for {} for {} ms from {} on, and was timed out at {}",
                self.name,
                self.wait_ms,
                At(self.invoked),
                At(at)
            ));
        }
    }

    fn not_late(
        &self,
        which: &Which,
        at: RealTime,
        history: &History,
        promises: &Promises,
        findings: &mut Findings,
    ) {
        let Some(ExpiryBound { grace_ms, tick_ms, .. }) = promises.expiry_bound else { return };
        let allowed_us = promises.longest_us(self.wait_ms + grace_ms + 2 * tick_ms)
            + leaderless_us(history, self.queued, at);
        if at.0 > self.queued.0.saturating_add(allowed_us) {
            findings.add(format!(
                "{which} was to wait for {} for {} ms, and stood there from {} to {}",
                self.name,
                self.wait_ms,
                At(self.queued),
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
    use holdfast_core::Outcome;
    use holdfast_replica::NodeId;

    /// Request 1 of session 1 waits for 1 s from 0 on, stands in the queue from 100 on, and is out at `end`.
    fn violations(end: u64, outcome: Outcome) -> usize {
        violations_with(&[], end, outcome)
    }

    /// With a leader that waited for its disk from and to these times.
    fn violations_with(slow_writes: &[(u64, u64)], end: u64, outcome: Outcome) -> usize {
        let mut story = TestHistory::default();
        let input =
            Input::Acquire { name: name("a"), wait_ms: 1_000, ttl_ms: None, max_hold_ms: None };
        story.ask(1, 1, input).from(0);
        story.log_at(2, 100, [queued("a", 1, 1)]);
        story.log_at(3, end, [wait_ended("a", 1, 1, outcome)]);
        let span = LeaderSpan { node: NodeId(1), term: 1, from: ms(0), to: ms(9_000) };
        story.history.leaders.push(span);
        story.history.slow_writes = slow_writes.iter().map(|it| (ms(it.0), ms(it.1))).collect();
        let bound = ExpiryBound { grace_ms: 300, tick_ms: 50, delivery_ms: 0 };
        let promises = Promises { expiry_bound: Some(bound), ..Promises::default() };
        check(&story.evidence(), &promises).len()
    }

    #[test]
    fn a_wait_that_ends_in_time_is_fine() {
        assert_eq!(violations(1_100, Outcome::TimedOut), 0);
        assert_eq!(violations(500, Outcome::Cancelled), 0);
    }

    #[test]
    fn a_wait_that_times_out_early_is_found() {
        assert_eq!(violations(970, Outcome::TimedOut), 1);
    }

    #[test]
    fn a_wait_that_goes_on_for_too_long_is_found() {
        assert_eq!(violations(1_510, Outcome::TimedOut), 0);
        assert_eq!(violations(1_520, Outcome::TimedOut), 1);
    }

    #[test]
    fn a_wait_under_a_slow_disk_ends_with_the_write_after_the_one_under_way() {
        // It is due at 1,100, in the first write. The second one makes the grace after a stall longer, the third ends it.
        let slow_writes = [(1_000, 1_400), (1_400, 1_800), (1_800, 2_200)];
        assert_eq!(violations_with(&[], 2_200, Outcome::TimedOut), 1);
        assert_eq!(violations_with(&slow_writes, 2_200, Outcome::TimedOut), 0);
        assert_eq!(violations_with(&slow_writes, 2_320, Outcome::TimedOut), 1);
        let of_others = [(10, 90), (9_100, 9_900)];
        assert_eq!(violations_with(&of_others, 2_200, Outcome::TimedOut), 1);
    }
}
