//! Expiry: no session ends early, and silent ones do not live for ever.
//!
//! A session's time counts from its last *answered* request: from when that was sent, since the client knows
//! nothing later. Requests without an answer may have been heard too, so they count against the upper
//! bound and not for the lower one. Every command that a session sends must be in the history, an attach as
//! a touch.
//!
//! A session whose principal was revoked may give up what it has, and gets the answers that it missed. Neither keeps it
//! alive. So where the policy changes, releases and cancels do not count, and a retry counts from its first sending.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::{
    EndReason, Event, FenceToken, LockName, Outcome, Rejection, RequestId, SessionId,
};

use super::evidence::Evidence;
use super::findings::{At, Findings, Who};
use super::promises::{ExpiryBound, Promises};
use crate::history::{ClientOperation, History, Input, Output, RealTime, Violation};

pub fn check(history: &Evidence<'_>, promises: &Promises) -> Vec<Violation> {
    let mut findings = Findings::of("expiry");
    if history.replicated.is_empty() || history.rates_broken {
        return findings.into_violations();
    }
    let sessions = sessions(history);
    let mut open: BTreeMap<SessionId, ()> = BTreeMap::new();
    let mut ended: BTreeSet<SessionId> = BTreeSet::new();
    let mut holds: BTreeMap<(SessionId, RequestId, &LockName), Held> = BTreeMap::new();
    for entry in history.log() {
        let at = entry.first_applied;
        for event in &entry.events {
            match event {
                Event::SessionOpened { session, .. } => drop(open.insert(*session, ())),
                // The decision counts. What follows it for a large session are the ends of its holds and waits.
                Event::SessionEnding { session, reason, .. }
                | Event::SessionEnded { session, reason, .. } => {
                    open.remove(session);
                    if !ended.insert(*session) {
                        continue;
                    }
                    let Some(known) = sessions.get(session) else { continue };
                    known.ended(*session, *reason, at, history, promises, &mut findings);
                    if !matches!(reason, EndReason::Closed | EndReason::Killed)
                        && let Some(bound) = &promises.expiry_bound
                    {
                        known.not_late(*session, at, history, promises, bound, &mut findings);
                    }
                }
                Event::Granted { name, session, request, token, .. } => {
                    let held = Held { tokens: vec![*token], since: at };
                    holds.insert((*session, *request, name), held);
                }
                Event::Converted { name, session, request, token, .. } => {
                    if let Some(held) = holds.get_mut(&(*session, *request, name)) {
                        held.tokens.push(*token);
                    }
                }
                Event::Released { name, session, request, .. }
                | Event::HoldEnded { name, session, request, .. } => {
                    let held = holds.remove(&(*session, *request, name));
                    let Some(held) = held else { continue };
                    let asked = history.asked(*session, *request);
                    let Some(acquire) = asked.filter(|asked| asked.input.is_acquire()) else {
                        continue;
                    };
                    held.not_late(acquire, name, at, history, promises, &mut findings);
                    let Event::HoldEnded { reason, .. } = event else { continue };
                    let Some(known) = sessions.get(session) else { continue };
                    let hold = HoldEnd { name, tokens: &held.tokens, reason: *reason, at };
                    known.hold_ended(*session, acquire, &hold, history, promises, &mut findings);
                }
                _ => {}
            }
        }
    }
    for ((session, request, name), held) in holds {
        if let Some(acquire) = history.asked(session, request) {
            held.not_late(acquire, name, history.end, history, promises, &mut findings);
        }
    }
    if let Some(bound) = &promises.expiry_bound {
        for session in open.into_keys() {
            if let Some(known) = sessions.get(&session) {
                known.not_late(session, history.end, history, promises, bound, &mut findings);
            }
        }
    }
    findings.into_violations()
}

/// A hold that goes on.
struct Held {
    /// All that it has had.
    tokens: Vec<FenceToken>,
    since: RealTime,
}

impl Held {
    /// A max-hold ends it, whatever its holder does.
    fn not_late(
        &self,
        acquire: &ClientOperation,
        name: &LockName,
        at: RealTime,
        history: &History,
        promises: &Promises,
        findings: &mut Findings,
    ) {
        let Some(ExpiryBound { grace_ms, tick_ms, .. }) = promises.expiry_bound else { return };
        let Some(max_hold_ms) = acquire.input.max_hold_ms() else { return };
        let allowed_us = promises.longest_us(max_hold_ms + grace_ms + 2 * tick_ms)
            + leaderless_us(history, self.since, at);
        if at.0 > self.since.0.saturating_add(allowed_us) {
            findings.add(format!(
                "{}'s hold of {name} was to end after {max_hold_ms} ms, and lasted from {} to {}",
                Who(acquire.session),
                At(self.since),
                At(at)
            ));
        }
    }
}

struct HoldEnd<'a> {
    name: &'a LockName,
    /// All that it has had.
    tokens: &'a [FenceToken],
    reason: EndReason,
    at: RealTime,
}

/// What its client did, and what it was told about its time.
#[derive(Default)]
struct Known<'a> {
    operations: Vec<&'a ClientOperation>,
    ttl_ms: Option<u64>,
    linger_ms: Option<u64>,
    policy_changes: bool,
}

fn sessions(history: &History) -> BTreeMap<SessionId, Known<'_>> {
    let mut sessions: BTreeMap<SessionId, Known<'_>> = BTreeMap::new();
    let policy_changes = history.policy_changes();
    for operation in &history.operations {
        let known = sessions.entry(operation.session).or_default();
        known.policy_changes = policy_changes;
        known.operations.push(operation);
        if let Input::OpenSession { ttl_ms } = operation.input {
            known.ttl_ms = Some(ttl_ms);
        }
        if let Some((_, Output::Outcome(Outcome::SessionOpen { ttl, linger, .. }))) =
            &operation.returned
        {
            known.ttl_ms = Some(ttl.as_ms());
            known.linger_ms = Some(linger.as_ms());
        }
    }
    sessions
}

/// When this was sent, if its answer proves that the lock table heard of the session then, and kept it alive.
pub(super) fn kept_alive_at(operation: &ClientOperation, policy_changes: bool) -> Option<RealTime> {
    if !proves_life(operation) {
        return None;
    }
    match policy_changes {
        true => (!operation.input.gives_up()).then_some(operation.invoked),
        false => Some(operation.last_sent),
    }
}

/// Does this answer prove that the lock table heard of the session, and knew it?
fn proves_life(operation: &ClientOperation) -> bool {
    if matches!(operation.input, Input::Intervene(_)) {
        return false;
    }
    match &operation.returned {
        Some((_, Output::Outcome(Outcome::Rejected(rejection)))) => matches!(
            rejection,
            Rejection::NotHeld
                | Rejection::GrantEnded
                | Rejection::TooManyHolds
                | Rejection::TooManyWaits
                | Rejection::QueueFull
                | Rejection::Frozen
                | Rejection::AlreadyHeld
                | Rejection::OtherPermits { .. }
                | Rejection::NoPermitsSet
                | Rejection::NoSuchWaiter
        ),
        Some((_, Output::Outcome(_))) => !matches!(operation.input, Input::Status { .. }),
        Some((_, Output::Status { .. })) | None => false,
    }
}

impl Known<'_> {
    /// Not before its time.
    fn ended(
        &self,
        session: SessionId,
        reason: EndReason,
        at: RealTime,
        history: &History,
        promises: &Promises,
        findings: &mut Findings,
    ) {
        let span_ms = match (reason, self.ttl_ms, self.linger_ms) {
            (EndReason::Ttl, Some(ttl_ms), _) => ttl_ms,
            (EndReason::Disconnected, Some(ttl_ms), Some(linger_ms)) => ttl_ms.min(linger_ms),
            _ => return,
        };
        let answered_before = |operation: &&&ClientOperation| {
            operation.returned.as_ref().is_some_and(|(returned, _)| *returned < at)
        };
        let last_sent = self
            .operations
            .iter()
            .filter(answered_before)
            .filter_map(|operation| kept_alive_at(operation, self.policy_changes))
            .max();
        if let Some(last_sent) = last_sent
            && promises.is_early(history, last_sent, span_ms, at)
        {
            findings.add(format!(
                "{} was ended ({reason:?}) at {}, though a request sent at {} had been answered and its \
                 time is {span_ms} ms",
                Who(session),
                At(at),
                At(last_sent)
            ));
        }
    }

    /// A hold with a TTL or a max-hold of its own: not before that. Retries of an acquire or a renewal do
    /// not count again, so what counts is when it was first sent.
    fn hold_ended(
        &self,
        session: SessionId,
        acquire: &ClientOperation,
        hold: &HoldEnd<'_>,
        history: &History,
        promises: &Promises,
        findings: &mut Findings,
    ) {
        let renewals = self.operations.iter().filter_map(|operation| match &operation.input {
            Input::Renew { name, token, ttl_ms }
                if name == hold.name
                    && hold.tokens.contains(token)
                    && operation.invoked < hold.at =>
            {
                Some((operation, *ttl_ms))
            }
            _ => None,
        });
        let (since, span_ms) = match hold.reason {
            EndReason::MaxHold => (acquire.invoked, acquire.input.max_hold_ms()),
            EndReason::Ttl => {
                let mut since = acquire.invoked;
                let mut shortest_ms = acquire.input.ttl_ms();
                for (renewal, ttl_ms) in renewals {
                    shortest_ms = match (shortest_ms, ttl_ms) {
                        (Some(known), Some(new)) => Some(known.min(new)),
                        (known, new) => known.or(new),
                    };
                    let answered = matches!(
                        &renewal.returned,
                        Some((returned, Output::Outcome(Outcome::Renewed { .. })))
                            if *returned < hold.at
                    );
                    if answered {
                        since = since.max(renewal.invoked);
                    }
                }
                (since, shortest_ms)
            }
            _ => return,
        };
        if let Some(span_ms) = span_ms
            && promises.is_early(history, since, span_ms, hold.at)
        {
            findings.add(format!(
                "{}'s hold of {} under {:?} was ended ({:?}) at {}, {span_ms} ms had not passed since {}",
                Who(session),
                hold.name,
                hold.tokens,
                hold.reason,
                At(hold.at),
                At(since)
            ));
        }
    }

    /// A silent session that still lives at `at` must not be older than the bound.
    fn not_late(
        &self,
        session: SessionId,
        at: RealTime,
        history: &History,
        promises: &Promises,
        bound: &ExpiryBound,
        findings: &mut Findings,
    ) {
        let Some(ttl_ms) = self.ttl_ms else { return };
        let could_be_heard = |operation: &&&ClientOperation| {
            let silent = matches!(operation.input, Input::Status { .. } | Input::Intervene(_));
            operation.invoked <= at && !silent
        };
        let recorded = history.contacts.get(&session).map(|heard| &heard[..]).unwrap_or_default();
        let last = recorded.iter().copied().rfind(|heard| *heard <= at);
        let mut sent = last.unwrap_or_default();
        let mut heard = sent;
        let unrecorded = if last.is_some() { &[][..] } else { &self.operations[..] };
        for operation in unrecorded.iter().filter(could_be_heard) {
            sent = sent.max(operation.last_sent.min(at));
            // A copy of it may have been under way even after its answer came.
            heard = heard.max(RealTime(operation.last_sent.0 + bound.delivery_ms * 1_000));
            if let Some((returned, _)) = &operation.returned {
                heard = heard.max(*returned);
            }
        }
        let allowed_us = promises.longest_us(ttl_ms)
            + leaderless_us(history, sent, at)
            + promises.longest_us(bound.grace_ms + 2 * bound.tick_ms);
        if at.0 > heard.0.saturating_add(allowed_us) {
            findings.add(format!(
                "{} lived until {}, {} ms longer than promised: nothing of it was heard after {}",
                Who(session),
                At(at),
                (at.0 - heard.0 - allowed_us) / 1_000,
                At(heard)
            ));
        }
    }
}

/// How long there was no leader between two moments, or led with a clock that stood still, or could not get through.
///
/// What is due ends with an entry. Where the leader's disk is slow, that entry waits for the write that is under way, and
/// takes a write of its own: neither takes longer than the longest one. (A write of which nothing is committed for so
/// long that the leader is not known to have led counts as time without one.)
pub(super) fn leaderless_us(history: &History, from: RealTime, to: RealTime) -> u64 {
    // Where replicas disagree, the later entry can be the one that was applied first.
    if to <= from {
        return 0;
    }
    let mut spans: Vec<(u64, u64)> = history
        .leaders
        .iter()
        .map(|span| (span.from.0.clamp(from.0, to.0), span.to.0.clamp(from.0, to.0)))
        .collect();
    spans.sort_unstable();
    let mut leaderless = 0;
    let mut covered_until = from.0;
    for (begin, end) in spans {
        leaderless += begin.saturating_sub(covered_until);
        covered_until = covered_until.max(end);
    }
    let slow = history.slow.iter().filter(|slow| slow.from <= to && from <= slow.to);
    let is_within = |(begin, end): &&(RealTime, RealTime)| *begin <= to && from <= *end;
    let is_led = |(begin, end): &&(RealTime, RealTime)| {
        history.leaders.iter().any(|span| span.from <= *begin && *end <= span.to)
    };
    let writes = history.slow_writes.iter().filter(is_within).filter(is_led);
    leaderless
        + to.0.saturating_sub(covered_until)
        + history.clocks.stopped_us(from, to)
        + slow.map(|slow| slow.delay_us).max().unwrap_or_default()
        + writes.map(|(begin, end)| 2 * (end.0 - begin.0)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::test_history::*;
    use crate::check::{ExpiryBound, Promises};
    use crate::history::{Input, LeaderSpan, SlowSpan, Violation};
    use holdfast_core::{EndReason, LogicalTime, Outcome, Span};
    use holdfast_replica::NodeId;

    /// Session 1 has a TTL of 1 s and a linger of 200 ms; its touch at 500 is answered at 520.
    fn a_session() -> TestHistory {
        let mut story = TestHistory::default();
        story.log_at(1, 1, [opened(1)]);
        story.open(1, 1_000, 200, 0);
        let touched = Outcome::Touched { ttl: Span::from_ms(1_000), departures: None };
        story.ask(1, 0, Input::Touch).from(500).until(520, touched);
        story
    }

    fn led(story: &mut TestHistory, from: u64, to: u64) {
        let span = LeaderSpan { node: NodeId(1), term: 1, from: ms(from), to: ms(to) };
        story.history.leaders.push(span);
    }

    fn bounded(story: &TestHistory) -> Vec<Violation> {
        let bound = ExpiryBound { grace_ms: 300, tick_ms: 50, delivery_ms: 100 };
        let promises = Promises { expiry_bound: Some(bound), ..Promises::default() };
        check(&story.evidence(), &promises)
    }

    fn early(story: &TestHistory) -> usize {
        check(&story.evidence(), &Promises::default()).len()
    }

    #[test]
    fn a_session_that_ends_a_ttl_after_its_last_answered_request_is_fine() {
        let mut story = a_session();
        story.log_at(2, 1_490, [ended(1, EndReason::Ttl)]);
        assert_eq!(early(&story), 0);
    }

    #[test]
    fn a_session_that_ends_early_is_found() {
        let mut story = a_session();
        story.log_at(2, 1_470, [ended(1, EndReason::Ttl)]);
        assert_eq!(early(&story), 1);
    }

    #[test]
    fn the_end_of_a_large_session_is_judged_by_when_it_was_decided() {
        for (decided, violations) in [(1_490, 0), (1_470, 1)] {
            let mut story = a_session();
            story.log_at(2, decided, [ending(1, EndReason::Ttl)]);
            story.log_at(3, 1_600, [ended(1, EndReason::Ttl)]);
            assert_eq!(early(&story), violations, "{decided}");
        }
    }

    #[test]
    fn a_request_that_was_not_answered_in_time_does_not_count() {
        let mut story = a_session();
        let touched = Outcome::Touched { ttl: Span::from_ms(1_000), departures: None };
        story.ask(1, 0, Input::Touch).from(1_200);
        story.ask(1, 0, Input::Touch).from(1_210).until(1_600, touched);
        story.log_at(2, 1_500, [ended(1, EndReason::Ttl)]);
        assert_eq!(early(&story), 0);
    }

    #[test]
    fn a_disconnected_session_lives_for_its_linger_time() {
        let mut story = a_session();
        story.log_at(2, 700, [ended(1, EndReason::Disconnected)]);
        assert_eq!(early(&story), 0);
        let mut story = a_session();
        story.log_at(2, 690, [ended(1, EndReason::Disconnected)]);
        assert_eq!(early(&story), 1);
    }

    #[test]
    fn a_hold_ends_by_its_own_ttl_and_not_before() {
        for (end, violations) in [(890, 0), (870, 1)] {
            let mut story = a_session();
            let input = Input::Acquire {
                name: name("a"),
                wait_ms: 0,
                ttl_ms: Some(300),
                max_hold_ms: None,
            };
            story.ask(1, 1, input).from(300).until(310, grants("a", 1));
            let renew =
                Input::Renew { name: name("a"), token: holdfast_core::FenceToken(1), ttl_ms: None };
            let renewed = Outcome::Renewed { deadline: None, session_deadline: LogicalTime::ZERO };
            story.ask(1, 2, renew).from(590).until(600, renewed);
            story.log_at(2, 305, [granted("a", 1, 1, 1)]);
            story.log_at(3, end, [hold_ended_by("a", 1, 1, 1, EndReason::Ttl)]);
            assert_eq!(early(&story), violations, "{end}");
        }
    }

    #[test]
    fn a_silent_session_ends_within_the_bound() {
        // Heard until 600; 1,010 + 303 + 101 more.
        let mut story = a_session();
        led(&mut story, 0, 9_000);
        story.log_at(2, 2_010, [ended(1, EndReason::Ttl)]);
        assert_eq!(bounded(&story), []);
    }

    #[test]
    fn a_silent_session_that_ends_late_is_found() {
        let mut story = a_session();
        led(&mut story, 0, 9_000);
        story.log_at(2, 2_020, [ended(1, EndReason::Ttl)]);
        assert_eq!(bounded(&story).len(), 1);
    }

    #[test]
    fn a_silent_session_that_never_ends_is_found() {
        let mut story = a_session();
        led(&mut story, 0, 9_000);
        story.history.end = ms(9_000);
        assert_eq!(bounded(&story).len(), 1);
    }

    #[test]
    fn time_without_a_leader_does_not_count() {
        let mut story = a_session();
        led(&mut story, 0, 600);
        led(&mut story, 1_600, 9_000);
        story.log_at(2, 3_010, [ended(1, EndReason::Ttl)]);
        assert_eq!(bounded(&story), []);
    }

    #[test]
    fn a_slow_network_and_a_clock_that_stands_still_are_excuses_while_they_last() {
        for (slow, stop, violations) in [(0, 0, 1), (60, 0, 0), (0, 60, 0)] {
            let mut story = a_session();
            led(&mut story, 0, 9_000);
            let (from, to, delay_us) = (ms(700), ms(800), slow * 1_000);
            story.history.slow.push(SlowSpan { from, to, delay_us });
            story.history.clocks.stops.push((ms(700), ms(700 + stop)));
            story.log_at(2, 2_060, [ended(1, EndReason::Ttl)]);
            assert_eq!(bounded(&story).len(), violations, "{slow} {stop}");
        }
    }

    #[test]
    fn a_request_under_way_may_have_been_heard() {
        let mut story = a_session();
        led(&mut story, 0, 9_000);
        story.ask(1, 0, Input::Touch).from(1_000);
        story.log_at(2, 2_510, [ended(1, EndReason::Ttl)]);
        assert_eq!(bounded(&story), []);
        story.history.replicated.pop();
        story.log_at(2, 2_520, [ended(1, EndReason::Ttl)]);
        assert_eq!(bounded(&story).len(), 1);
    }
}
