//! The sum, and what follows from it.

use std::time::Duration;

use serde::Serialize;

use super::measure::RoundTrips;
use crate::duration::as_written;
use crate::output::Show;
use crate::text;

/// By how much two clocks that Holdfast trusts may run apart: each is within 1 %.
const DRIFT_PERCENT: f64 = 2.0;
/// Times are told in whole milliseconds, twice.
const DRIFT_MS: f64 = 2.0;
const ROUNDED_UP_TO_MS: u64 = 100;

/// A session sends so many heartbeats in its TTL.
const HEARTBEATS_PER_TTL: u64 = 3;
/// Longer than a new leader takes to be elected, connected to and to answer. With the default settings its election
/// begins after 0.5 s to 1 s.
const FAILOVER_MS: f64 = 2_000.0;
/// What a session may outlive its TTL by, with the default settings: one grace and two ticks.
const GRACE_AND_TICKS_MS: f64 = 1_000.0 + 2.0 * 50.0;
const TTL_MAX_MS: u64 = 24 * 3_600_000;

#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) takes: Duration,
    pub(super) is_measured: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Advice {
    /// As `--ttl` takes it.
    ttl: String,
    ttl_ms: u64,
    operation_ms: f64,
    /// `given` or `measured`.
    operation_is: &'static str,
    latency_ms: f64,
    /// Whose p99 it is.
    latency_of: &'static str,
    drift_ms: f64,
    /// Half of the TTL, before it is rounded.
    sum_ms: f64,
    /// How long after the last renewal of a crashed holder the next one has the lock, at the latest.
    takeover_ms: u64,
    heartbeat_every_ms: u64,
    /// A shorter TTL of a session may not outlive a change of leader.
    session_ttl_min_ms: u64,
    pub(super) warnings: Vec<String>,
    measured: Vec<RoundTrips>,
}

impl Advice {
    pub(super) fn of(operation: Operation, measured: Vec<RoundTrips>) -> Advice {
        let operation_ms = operation.takes.as_secs_f64() * 1_000.0;
        let slowest = measured.iter().max_by(|a, b| a.p99_ms.total_cmp(&b.p99_ms));
        let (latency_of, latency_ms) = slowest.map_or(("", 0.0), |it| (it.request, it.p99_ms));
        let drift_ms = (operation_ms + latency_ms) * DRIFT_PERCENT / 100.0 + DRIFT_MS;
        let sum_ms = operation_ms + latency_ms + drift_ms;
        let ttl_ms = round_up(2.0 * sum_ms);
        // The last heartbeat that was answered is up to a third of the TTL old when the leader dies.
        let session_ttl_min_ms = round_up((FAILOVER_MS + latency_ms) * 1.5 + drift_ms);
        let mut advice = Advice {
            ttl: as_written(Duration::from_millis(ttl_ms)),
            ttl_ms,
            operation_ms,
            operation_is: if operation.is_measured { "measured" } else { "given" },
            latency_ms,
            latency_of,
            drift_ms,
            sum_ms,
            takeover_ms: (ttl_ms as f64 * 1.01 + GRACE_AND_TICKS_MS).ceil() as u64,
            heartbeat_every_ms: ttl_ms / HEARTBEATS_PER_TTL,
            session_ttl_min_ms,
            warnings: Vec::new(),
            measured,
        };
        advice.warnings = advice.warnings();
        advice
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.ttl_ms < self.session_ttl_min_ms {
            let least = as_written(Duration::from_millis(self.session_ttl_min_ms));
            warnings.push(format!(
                "{} is less than heartbeats allow: with one every {} ms, a holder would give its lock up \
                 when the leader changes. As the TTL of a session (`holdfast lock --ttl`, \
                 `Client::builder().ttl()`) use {least} or more",
                self.ttl, self.heartbeat_every_ms
            ));
        }
        if self.ttl_ms > TTL_MAX_MS {
            warnings.push(
                "no TTL is longer than 24h: use `holdfast lock` or the library, whose heartbeats keep \
                 a lock for as long as the work takes"
                    .to_owned(),
            );
        }
        let floor_ms = self.operation_ms / 10.0;
        if self.latency_ms > floor_ms.max(100.0) {
            warnings.push(format!(
                "the cluster is slow to answer (p99 {:.0} ms): the advice is only as good as this moment",
                self.latency_ms
            ));
        }
        warnings
    }
}

/// To a round number of milliseconds, and to none that is no TTL.
fn round_up(ms: f64) -> u64 {
    (ms.ceil() as u64).div_ceil(ROUNDED_UP_TO_MS).max(1) * ROUNDED_UP_TO_MS
}

impl Show for Advice {
    fn to_table(&self) -> String {
        let term = |name: &str, ms: f64, from: String| vec![name.to_owned(), number(ms), from];
        let rows = [
            term("operation", self.operation_ms, self.operation_is.to_owned()),
            term("latency", self.latency_ms, format!("p99 of {}, the slowest", self.latency_of)),
            term("drift", self.drift_ms, "2 % of both, and 2 ms".to_owned()),
            term("sum", self.sum_ms, String::new()),
            term("TTL", self.ttl_ms as f64, "2 x the sum, rounded up".to_owned()),
        ];
        let measured: Vec<Vec<String>> = self
            .measured
            .iter()
            .map(|it| {
                let times = [it.p50_ms, it.p99_ms, it.longest_ms].map(number);
                [it.request.to_owned(), it.samples.to_string()].into_iter().chain(times).collect()
            })
            .collect();
        format!(
            "{}\n{}\nIf a holder vanishes, the next one has the lock within {} ms of its last word \
             (TTL x 1.01 + 1.1 s).\nholdfast acquire NAME --ttl {}\n",
            text::table(&["TERM", "MS", "FROM"], &rows),
            text::table(&["REQUEST", "SAMPLES", "P50 MS", "P99 MS", "LONGEST MS"], &measured),
            self.takeover_ms,
            self.ttl
        )
    }
}

fn number(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trips(request: &'static str, ms: u64) -> RoundTrips {
        RoundTrips::of(request, vec![Duration::from_millis(ms); 10])
    }

    fn advice(operation_ms: u64, latency_ms: u64) -> Advice {
        let takes = Duration::from_millis(operation_ms);
        let measured = vec![round_trips("acquire", 1), round_trips("heartbeat", latency_ms)];
        Advice::of(Operation { takes, is_measured: false }, measured)
    }

    #[test]
    fn the_ttl_is_twice_the_sum_of_operation_latency_and_drift() {
        let advice = advice(3_000, 50);
        // 3,000 + 50 + (61 + 2) = 3,113; twice that, rounded up to a hundred.
        assert_eq!((advice.latency_ms, advice.latency_of), (50.0, "heartbeat"));
        assert_eq!(advice.drift_ms, 63.0);
        assert_eq!((advice.ttl_ms, advice.ttl.as_str()), (6_300, "6300ms"));
        assert_eq!(advice.takeover_ms, 7_463);
        assert!(advice.warnings.is_empty(), "{:?}", advice.warnings);
    }

    #[test]
    fn what_heartbeats_do_not_allow_is_warned_of() {
        let advice = advice(100, 4);
        assert_eq!(advice.ttl_ms, 300);
        assert_eq!(advice.session_ttl_min_ms, 3_100);
        assert!(advice.warnings[0].contains("use 3100ms or more"), "{:?}", advice.warnings);
    }

    #[test]
    fn what_no_ttl_can_cover_is_warned_of() {
        let warnings = advice(13 * 3_600_000, 4).warnings;
        assert!(warnings.iter().any(|words| words.contains("24h")), "{warnings:?}");
    }
}
