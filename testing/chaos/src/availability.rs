//! How much of the time the cluster served while it could.

use std::time::Duration;

use holdfast_sim::history::{History, RealTime};

const WINDOW_US: u64 = 100_000;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Availability {
    /// Windows of 100 ms that lie wholly in a time with a quorum.
    pub(crate) windows: u64,
    /// Those of them in which some operation was answered.
    pub(crate) served: u64,
    /// The longest time between two answers, as far as a quorum was up meanwhile.
    pub(crate) longest_silence: Duration,
}

impl Availability {
    /// `quorum` says from when on there was one, or none; `until` is when the clients stopped.
    pub(crate) fn of(
        history: &History,
        quorum: &[(RealTime, bool)],
        until: RealTime,
    ) -> Availability {
        let mut answers: Vec<u64> = history
            .operations
            .iter()
            .filter_map(|operation| operation.returned.as_ref())
            .map(|(at, _)| at.0)
            .collect();
        answers.sort_unstable();
        let mut availability = Availability::default();
        for (from, to) in spans(quorum, until) {
            availability.add_span(&answers, from, to);
        }
        availability
    }

    pub(crate) fn percent(&self) -> f64 {
        100.0 * self.served as f64 / self.windows.max(1) as f64
    }

    fn add_span(&mut self, answers: &[u64], from: u64, to: u64) {
        let answers = &answers[answers.partition_point(|at| *at < from)..];
        let answers = &answers[..answers.partition_point(|at| *at < to)];
        let mut last = from;
        for at in answers.iter().chain([&to]) {
            let silence = Duration::from_micros(at - last);
            self.longest_silence = self.longest_silence.max(silence);
            last = *at;
        }
        let mut served = u64::MAX;
        for window in answers.iter().map(|at| (at - from) / WINDOW_US) {
            if window != served && window < (to - from) / WINDOW_US {
                self.served += 1;
            }
            served = window;
        }
        self.windows += (to - from) / WINDOW_US;
    }
}

/// The times with a quorum, as long as they last.
fn spans(quorum: &[(RealTime, bool)], until: RealTime) -> Vec<(u64, u64)> {
    let mut spans = Vec::new();
    let mut since = None;
    for (at, is_up) in quorum.iter().filter(|(at, _)| *at < until) {
        match (since, is_up) {
            (None, true) => since = Some(at.0),
            (Some(from), false) => {
                spans.push((from, at.0));
                since = None;
            }
            _ => {}
        }
    }
    spans.extend(since.map(|from| (from, until.0)));
    spans
}

#[cfg(test)]
mod tests {
    use holdfast_core::{Outcome, RequestId, SessionId};
    use holdfast_sim::history::{ClientOperation, Input, Output};

    use super::*;

    fn answered_at_ms(times: &[u64]) -> History {
        let operation = |ms: &u64| ClientOperation {
            session: SessionId(1),
            request: RequestId(1),
            input: Input::Touch,
            invoked: RealTime::default(),
            returned: Some((RealTime(ms * 1_000), Output::Outcome(Outcome::Done))),
            last_sent: RealTime::default(),
        };
        History { operations: times.iter().map(operation).collect(), ..History::default() }
    }

    #[test]
    fn only_times_with_a_quorum_count() {
        let history = answered_at_ms(&[10, 20, 110, 350, 1_950]);
        let quorum = [(0, true), (400, false), (1_900, true), (1_910, true)];
        let quorum = quorum.map(|(ms, up)| (RealTime(ms * 1_000), up));
        let availability = Availability::of(&history, &quorum, RealTime(2_000_000));
        assert_eq!((availability.windows, availability.served), (5, 4));
        assert_eq!(availability.longest_silence, Duration::from_millis(240));
    }
}
