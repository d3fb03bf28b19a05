//! Do silent sessions end in time? Clients that fall silent are made for this question, so that it is clear when
//! they were last heard of: only those count whose every request was answered at its first sending, since a
//! copy that was held up somewhere would keep its session alive.
//!
//! From outside it is not known when there was a leader. Whatever time passed without an answer to any client counts
//! as time without one.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_core::{Outcome, SessionId};
use holdfast_sim::history::{ClientOperation, History, Input, Output, RealTime, Violation};

pub(crate) const NAME_PREFIX: &str = "left:";
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// One grace of a new leader, and one more of a leader that stalled; and two ticks. The nodes run with the
/// defaults: 1 s and 50 ms.
const SLACK: Duration = Duration::from_millis(2 * 1_000 + 2 * 50);
/// Some client asks every few milliseconds; a silence longer than this may be the want of a leader.
const SILENCE_MIN_US: u64 = 150_000;

/// A sending that came later than this was not the first: those are further apart.
const FIRST_SENDING_MAX_US: u64 = 10_000;

#[derive(Debug, Default)]
pub(crate) struct LateExpiry {
    /// Sessions whose end was seen.
    pub(crate) ended: u64,
    pub(crate) violations: Vec<Violation>,
}

pub(crate) fn judge(history: &History) -> LateExpiry {
    let mut answers: Vec<u64> = history
        .operations
        .iter()
        .filter_map(|operation| operation.returned.as_ref())
        .map(|(at, _)| at.0)
        .collect();
    answers.sort_unstable();
    let last_heard = last_heard(history);
    let mut verdict = LateExpiry::default();
    for (name, session) in silent_sessions(history) {
        let Some(Some(heard)) = last_heard.get(&session).copied() else { continue };
        let reads = history.operations.iter().filter(
            |operation| matches!(&operation.input, Input::Status { name: read } if **read == *name),
        );
        let mut last_held = None;
        for read in reads {
            let Some((_, Output::Status { holder, .. })) = &read.returned else { continue };
            match holder {
                Some((holder, _)) if *holder == session => last_held = Some(read.invoked),
                _ => verdict.ended += 1,
            }
        }
        let late_us = last_held.map_or(0, |at| at.0.saturating_sub(deadline(&answers, heard, at)));
        if late_us > 0 {
            let what = format!(
                "{name} was still held {} ms after the time at which its silent session {:x} had to be \
                 ended; it was last heard of at {} ms",
                late_us / 1_000,
                session.0,
                heard.0 / 1_000
            );
            verdict.violations.push(Violation { checker: "late expiry", what });
        }
    }
    verdict
}

/// Until when a session may live that was heard of at `heard`, if it is looked at `at` some time.
fn deadline(answers: &[u64], heard: RealTime, at: RealTime) -> u64 {
    let span_us = (TTL + SLACK).as_micros() as u64;
    heard.0 + span_us / 100 * 101 + silent_us(answers, heard.0, at.0)
}

/// For how long no client was answered between two moments.
fn silent_us(answers: &[u64], from: u64, to: u64) -> u64 {
    let within = &answers[answers.partition_point(|at| *at < from)..];
    let within = &within[..within.partition_point(|at| *at < to)];
    let mut last = from;
    let mut silent = 0;
    for at in within.iter().chain([&to]) {
        silent += Some(at - last).filter(|gap| *gap >= SILENCE_MIN_US).unwrap_or_default();
        last = *at;
    }
    silent
}

/// The names that sessions left behind, and whose they were.
fn silent_sessions(history: &History) -> impl Iterator<Item = (&str, SessionId)> {
    history.operations.iter().filter_map(|operation| {
        match (&operation.input, &operation.returned) {
            (Input::Acquire { name, .. }, Some((_, Output::Outcome(Outcome::Granted(_)))))
                if name.starts_with(NAME_PREFIX) =>
            {
                Some((&**name, operation.session))
            }
            _ => None,
        }
    })
}

/// None for a session that may have been heard of later than is known.
fn last_heard(history: &History) -> BTreeMap<SessionId, Option<RealTime>> {
    let is_plain = |operation: &ClientOperation| {
        operation.last_sent.0 - operation.invoked.0 <= FIRST_SENDING_MAX_US
    };
    let mut heard: BTreeMap<SessionId, Option<RealTime>> = BTreeMap::new();
    for operation in &history.operations {
        let answered =
            operation.returned.as_ref().filter(|_| is_plain(operation)).map(|(at, _)| *at);
        heard
            .entry(operation.session)
            .and_modify(|last| *last = last.and_then(|last| Some(last.max(answered?))))
            .or_insert(answered);
    }
    heard
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::Mode;
    use holdfast_core::{FenceToken, Grant, LockName, LogicalTime, RequestId};

    use super::*;

    fn ms(ms: u64) -> RealTime {
        RealTime(ms * 1_000)
    }

    fn operation(session: u128, input: Input, at: u64, output: Output) -> ClientOperation {
        ClientOperation {
            session: SessionId(session),
            request: RequestId(1),
            input,
            invoked: ms(at),
            returned: Some((ms(at + 1), output)),
            last_sent: ms(at),
        }
    }

    /// Session 1 is granted a lock at 0 and falls silent; a read at `seen` finds it there. A client reads
    /// something all the time, but for a second of silence.
    fn left(seen: u64) -> History {
        let name = LockName::new("left:1").unwrap();
        let grant = Grant {
            name: name.clone(),
            acquire: RequestId(1),
            token: FenceToken(1),
            mode: Mode::Exclusive,
            deadline: None,
            session_deadline: LogicalTime::ZERO,
        };
        let acquire =
            Input::Acquire { name: name.clone(), wait_ms: 0, ttl_ms: None, max_hold_ms: None };
        let granted = Output::Outcome(Outcome::Granted(grant));
        let mut operations = vec![operation(1, acquire, 0, granted)];
        let other = LockName::new("shared").unwrap();
        for at in (0..9_000).step_by(100).filter(|at| !(500..1_500).contains(at)) {
            let free = Output::Status { holder: None, waiters: 0 };
            operations.push(operation(9, Input::Status { name: other.clone() }, at, free));
        }
        let holder = Some((SessionId(1), FenceToken(1)));
        let held = Output::Status { holder, waiters: 0 };
        operations.push(operation(9, Input::Status { name: name.clone() }, seen, held));
        let free = Output::Status { holder: None, waiters: 0 };
        operations.push(operation(9, Input::Status { name }, 8_000, free));
        History { operations, ..History::default() }
    }

    #[test]
    fn a_silent_session_may_live_for_its_ttl_the_slack_and_the_silence() {
        // 1 + (2,000 + 2,100) x 1.01 + 1,100.
        let verdict = judge(&left(5_200));
        assert_eq!((verdict.ended, verdict.violations.len()), (1, 0));
    }

    #[test]
    fn one_that_lives_longer_is_found() {
        assert_eq!(judge(&left(5_300)).violations.len(), 1);
    }

    #[test]
    fn one_that_may_have_been_heard_of_again_is_not_judged() {
        let mut history = left(5_300);
        history.operations[0].last_sent = ms(20);
        history.operations[0].returned.as_mut().unwrap().0 = ms(21);
        assert_eq!(judge(&history).violations.len(), 0);
    }
}
