//! What Holdfast is meant to reach, and whether a comparison shows it.
//!
//! A goal is about one row of the table at its full size: a run that leaves the row out, or is smaller, does not
//! measure it.

use serde::Serialize;

use crate::measure::Measure;
use crate::plan::Workload;
use crate::rows::{OURS, Row};
use crate::text_table::{aligned, in_short};

const W1_1: &str = "1 client over 1 connection";
const W1_256: &str = "256 clients over 8 connections";
const W1_1024: &str = "1024 clients over 8 connections";
const W1_256_OVER_256: &str = "256 clients over 256 connections";
const W2: &str = "64 clients want one lock";
const W3_LOADED: &str = "600 s of load, no node killed";
const W6_BESIDE: &str = "8 readers beside 64 writers";
const W8_HELD: &str = "500 sessions, 500000 held, 50000 operations/s";
const W8_SESSIONS: &str = "100000 sessions, 30000 operations/s";
const W9_PAIRS: &str = "256 clients over 8, none and 500000 held";
const W9_SNAPSHOTS: &str = "64 clients over 8, 500000 held, snapshots";
const FIVE_NODES: &str = "holdfast5";
const FULL: &str = "holdfast-full";

/// A figure, and how large it is to be.
#[derive(Debug, Clone, Copy)]
struct Goal {
    workload: Workload,
    title: &'static str,
    measure: Measure,
    of: &'static str,
    wanted: Wanted,
}

#[derive(Debug, Clone, Copy)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
    /// So many times what that service does.
    TimesAtLeast(f64, &'static str),
    TimesAtMost(f64, &'static str),
    /// More than in the row with this title.
    MoreThanIn(&'static str),
}

/// What a comparison says about a goal.
#[derive(Debug, Serialize)]
pub(crate) struct Checked {
    goal: String,
    wanted: String,
    /// None: it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<f64>,
    verdict: &'static str,
}

/// In the order of the workloads.
fn goals() -> Vec<Goal> {
    use Measure::{
        BytesPerLock, Elections, FarthestWait, HandOvers, IdlePercent, Operations, P50, P99,
        P99Growth, Reads, Restart, Silence,
    };
    use Wanted::{AtLeast, AtMost, MoreThanIn, TimesAtLeast, TimesAtMost};
    use Workload::{W1, W3, W4, W6, W8, W9};
    let ours =
        |workload, title, measure, wanted| Goal { workload, title, measure, of: OURS, wanted };
    let full = |title, measure, wanted| Goal { workload: W9, title, measure, of: FULL, wanted };
    vec![
        ours(W1, W1_256, Operations, TimesAtLeast(50.0, "etcd")),
        ours(W1, W1_256, Operations, TimesAtLeast(25.0, "zookeeper")),
        ours(W1, W1_256, Operations, TimesAtLeast(2.0, "redis")),
        ours(W1, W1_1024, Operations, MoreThanIn(W1_256)),
        ours(W1, W1_256_OVER_256, Operations, TimesAtLeast(1.0, "redis")),
        ours(W1, W1_1, P50, TimesAtMost(0.4, "etcd")),
        ours(W1, W1_1, P50, TimesAtMost(0.45, "zookeeper")),
        Goal { of: FIVE_NODES, ..ours(W1, W1_1, P50, TimesAtMost(1.3, OURS)) },
        ours(Workload::W2, W2, HandOvers, TimesAtLeast(10.0, "etcd")),
        ours(Workload::W2, W2, HandOvers, TimesAtLeast(5.0, "zookeeper")),
        ours(Workload::W2, W2, HandOvers, TimesAtLeast(2.0, "redis")),
        ours(Workload::W2, W2, FarthestWait, AtMost(10.0)),
        ours(W3, "leader killed", Silence, AtMost(500.0)),
        ours(W3, W3_LOADED, Elections, AtMost(0.0)),
        ours(W4, "100000 held locks", BytesPerLock, AtMost(372.0)),
        ours(W4, "500000 held locks", BytesPerLock, AtMost(372.0)),
        ours(W6, W6_BESIDE, P50, AtMost(1_000.0)),
        ours(W6, "64 readers", Reads, TimesAtLeast(2.0, "etcd")),
        ours(W8, W8_HELD, P99, AtMost(5_000.0)),
        // Of what was offered, as much as a window can miss at its edges.
        ours(W8, W8_SESSIONS, Operations, AtLeast(0.99 * 30_000.0)),
        ours(W8, W8_SESSIONS, IdlePercent, AtMost(5.0)),
        full(W9_PAIRS, Operations, TimesAtLeast(0.9, OURS)),
        full(W9_SNAPSHOTS, P99Growth, AtMost(3.0)),
        full(W9_SNAPSHOTS, Restart, AtMost(3.0)),
    ]
}

pub(crate) fn check(rows: &[Row]) -> Vec<Checked> {
    goals().iter().map(|goal| goal.check(rows)).collect()
}

/// A line for each.
pub(crate) fn to_table(checked: &[Checked]) -> String {
    let head = ["GOAL", "WANTED", "SEEN", ""].map(str::to_owned).to_vec();
    let lines = checked.iter().map(|goal| {
        let seen = goal.seen.map_or_else(|| "-".to_owned(), in_short);
        vec![goal.goal.clone(), goal.wanted.clone(), seen, goal.verdict.to_owned()]
    });
    aligned(&[head].into_iter().chain(lines).collect::<Vec<_>>())
}

impl Goal {
    fn check(&self, rows: &[Row]) -> Checked {
        let seen = self.seen(rows);
        let verdict = match seen {
            None => "not measured",
            Some(seen) if self.wanted.is_met_by(seen) => "held",
            Some(_) => "missed",
        };
        let of = if self.of == OURS { String::new() } else { format!(" of {}", self.of) };
        let goal = format!("{:?} {}: {}{of}", self.workload, self.title, self.measure.unit());
        Checked { goal, wanted: self.wanted.in_words(), seen, verdict }
    }

    /// The figure itself, or how many times that of the other it is.
    fn seen(&self, rows: &[Row]) -> Option<f64> {
        let figure = |title: &str, service: &str| {
            let workload = format!("{:?}", self.workload);
            let row = rows.iter().find(|row| {
                row.workload == workload && row.title == title && row.unit == self.measure.unit()
            })?;
            row.medians.get(service).copied()
        };
        let own = figure(self.title, self.of)?;
        let other = match self.wanted {
            Wanted::AtLeast(_) | Wanted::AtMost(_) => return Some(own),
            Wanted::TimesAtLeast(_, service) | Wanted::TimesAtMost(_, service) => {
                figure(self.title, service)?
            }
            Wanted::MoreThanIn(title) => figure(title, self.of)?,
        };
        (other > 0.0).then(|| own / other)
    }
}

impl Wanted {
    fn is_met_by(self, seen: f64) -> bool {
        match self {
            Wanted::AtLeast(bound) | Wanted::TimesAtLeast(bound, _) => seen >= bound,
            Wanted::AtMost(bound) | Wanted::TimesAtMost(bound, _) => seen <= bound,
            Wanted::MoreThanIn(_) => seen > 1.0,
        }
    }

    fn in_words(self) -> String {
        match self {
            Wanted::AtLeast(bound) => format!("at least {bound}"),
            Wanted::AtMost(bound) => format!("at most {bound}"),
            Wanted::TimesAtLeast(times, service) => format!("at least {times} times {service}"),
            Wanted::TimesAtMost(times, service) => format!("at most {times} times {service}"),
            Wanted::MoreThanIn(title) => format!("more than with {title}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use clap::ValueEnum;

    use super::*;
    use crate::plan::{Scale, cases};

    fn row(title: &str, measure: Measure, medians: &[(&'static str, f64)]) -> Row {
        Row {
            workload: "W1".to_owned(),
            title: title.to_owned(),
            unit: measure.unit(),
            more_is_better: measure.more_is_better(),
            medians: medians.iter().copied().collect(),
            ratios: BTreeMap::new(),
        }
    }

    fn lines(rows: &[Row]) -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        to_table(&check(rows)).lines().map(words).collect()
    }

    #[test]
    fn every_goal_has_its_row_in_a_full_comparison() {
        let (turn, loaded) = (Duration::from_secs(3), Duration::from_secs(600));
        let all = cases(Workload::value_variants(), Scale { turn, loaded, quick: false });
        for goal in goals() {
            let has = |case: &&crate::plan::Case| {
                (case.workload, case.title.as_str()) == (goal.workload, goal.title)
            };
            let case = all.iter().find(has).unwrap_or_else(|| panic!("no row for {goal:?}"));
            assert!(case.measures.contains(&goal.measure), "{goal:?}");
        }
    }

    #[test]
    fn a_goal_is_held_or_missed_by_the_ratio_of_the_medians() {
        let rows =
            [row(W1_256, Measure::Operations, &[(OURS, 100.0), ("redis", 50.0), ("etcd", 4.0)])];
        let lines = lines(&rows);
        let about = "W1 256 clients over 8 connections: operations/s at least";
        assert!(lines.contains(&format!("{about} 2 times redis 2.00 held")), "{lines:?}");
        assert!(lines.contains(&format!("{about} 50 times etcd 25.0 missed")), "{lines:?}");
        assert!(lines.contains(&format!("{about} 25 times zookeeper - not measured")), "{lines:?}");
    }

    #[test]
    fn five_nodes_are_compared_with_three_and_rows_with_each_other() {
        let rows = [
            row(W1_1, Measure::P50, &[(OURS, 200.0), (FIVE_NODES, 250.0)]),
            row(W1_256, Measure::Operations, &[(OURS, 100.0)]),
            row(W1_1024, Measure::Operations, &[(OURS, 90.0)]),
        ];
        let lines = lines(&rows);
        let five = "W1 1 client over 1 connection: p50, us of holdfast5 at most 1.3 times holdfast 1.25 held";
        assert!(lines.iter().any(|line| line == five), "{lines:?}");
        let more = "more than with 256 clients over 8 connections 0.90 missed";
        assert!(lines.iter().any(|line| line.ends_with(more)), "{lines:?}");
    }

    #[test]
    fn nothing_is_said_of_what_was_not_run() {
        assert!(check(&[]).iter().all(|goal| goal.verdict == "not measured"));
    }
}
