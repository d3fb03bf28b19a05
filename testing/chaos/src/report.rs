//! What came of a run, for people.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use holdfast_sim::history::{History, Output, Violation};

use crate::availability::Availability;

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) nodes: u64,
    pub(crate) length: Duration,
    pub(crate) history: History,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) wall_clocks_jumped: bool,
    /// Of each group, in the order of their numbers.
    pub(crate) availability: Vec<(u32, Availability)>,
    /// In the audit file that has most of them.
    pub(crate) audited_events: usize,
    /// In these some grants cannot be looked up in the audit files.
    pub(crate) groups_with_common_gap: Vec<u32>,
    pub(crate) kept_locks: usize,
    pub(crate) snapshot_installs: u64,
    pub(crate) silent_sessions_ended: u64,
    pub(crate) checking: Duration,
    pub(crate) violations: Vec<Violation>,
}

/// More than this of them do not help; the kept files have the rest.
const VIOLATIONS_SHOWN: usize = 20;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = &self.history;
        let answered = history.operations.iter().filter(|op| op.returned.is_some()).count();
        let reads = history
            .operations
            .iter()
            .filter(|op| matches!(op.returned, Some((_, Output::Status { .. }))))
            .count();
        let refused = history.writes.iter().filter(|write| !write.accepted).count();
        let groups = self.availability.len();
        let groups = if groups > 1 { format!(", {groups} groups") } else { String::new() };
        writeln!(
            f,
            "seed           {}, {} nodes{groups}, {:?}",
            self.seed, self.nodes, self.length
        )?;
        writeln!(
            f,
            "operations     {} ({answered} answered, {reads} of them reads)",
            history.operations.len()
        )?;
        writeln!(f, "store writes   {} ({refused} refused by token)", history.writes.len())?;
        writeln!(f, "audit files    {} events", self.audited_events)?;
        if !self.groups_with_common_gap.is_empty() {
            let groups = &self.groups_with_common_gap;
            writeln!(
                f,
                "               all files have a gap in groups {groups:?}: grants not looked up"
            )?;
        }
        writeln!(f, "kept locks     {}, looked up one by one", self.kept_locks)?;
        writeln!(f, "silent         {} sessions, seen to end", self.silent_sessions_ended)?;
        writeln!(f, "snapshots      {} taken in from a leader", self.snapshot_installs)?;
        writeln!(f, "faults         {}", self.faults.values().sum::<u64>())?;
        for (kind, count) in &self.faults {
            writeln!(f, "               {count:3} x {kind}")?;
        }
        let clocks = match self.wall_clocks_jumped {
            true => "jumped, through libfaketime",
            false => "not touched: libfaketime is not installed",
        };
        writeln!(f, "wall clocks    {clocks}")?;
        for (group, availability) in &self.availability {
            let of_group = if self.availability.len() > 1 {
                format!("group {group}: ")
            } else {
                String::new()
            };
            writeln!(
                f,
                "availability   {of_group}{:.1} % of {} windows of 100 ms with a quorum up; longest silence {} ms",
                availability.percent(),
                availability.windows,
                availability.longest_silence.as_millis()
            )?;
        }
        writeln!(f, "checking       {:.1} s", self.checking.as_secs_f64())?;
        write!(f, "violations     {}", self.violations.len())?;
        for violation in self.violations.iter().take(VIOLATIONS_SHOWN) {
            write!(f, "\n  {}: {}", violation.checker, violation.what)?;
        }
        Ok(())
    }
}

/// Every operation and write, one per line, in the order of their beginning.
pub(crate) fn transcript(history: &History) -> String {
    let mut text = String::new();
    for op in &history.operations {
        let end = match &op.returned {
            Some((at, output)) => format!("{} {output:?}", at.0),
            None => "never".to_owned(),
        };
        text += &format!(
            "{} {:032x} #{} {:?} -> {end}\n",
            op.invoked.0, op.session.0, op.request.0, op.input
        );
    }
    for write in &history.writes {
        let (at, session) = (write.at.0, write.session.0);
        let accepted = if write.accepted { "accepted" } else { "refused" };
        text += &format!("{at} {session:032x} write {} {} {accepted}\n", write.name, write.token);
    }
    text
}
