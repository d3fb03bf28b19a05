//! The one log, put together from what the replicas did.
//!
//! A node's record is cut into *log_runs*: within one, entries follow each other without a gap; a new one
//! begins when the node's table is restored. Entries without events leave no trace, so what a log_run
//! covers is known only from its beginning to its last record.

use std::collections::BTreeMap;

use holdfast_core::{Event, LogIndex, LogicalTime};
use holdfast_replica::NodeId;

use crate::history::{Happening, History, RealTime};

/// An entry of the log that had events.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) index: LogIndex,
    pub(super) logical: LogicalTime,
    /// When the first replica applied it. Whatever was answered before this moment stands earlier in
    /// the log; whatever was sent after it stands later.
    pub(super) first_applied: RealTime,
    pub(super) events: Vec<&'a Event>,
}

/// What one node applied without interruption.
#[derive(Debug)]
pub(super) struct LogRun<'a> {
    pub(super) node: NodeId,
    /// It holds what comes after this index.
    pub(super) after: LogIndex,
    /// In order.
    pub(super) entries: Vec<Entry<'a>>,
    /// An index that was recorded when a later one had been.
    pub(super) went_back_to: Option<LogIndex>,
}

/// What each node did, in the order of the record.
pub(super) fn log_runs(history: &History) -> Vec<LogRun<'_>> {
    let mut current: BTreeMap<NodeId, LogRun<'_>> = BTreeMap::new();
    let mut done = Vec::new();
    for record in &history.replicated {
        match &record.what {
            Happening::Digest(_) => {}
            Happening::Restored => {
                let log_run = LogRun::new(record.node, record.index);
                done.extend(current.insert(record.node, log_run));
            }
            Happening::Event(event) => {
                let log_run = current
                    .entry(record.node)
                    .or_insert_with(|| LogRun::new(record.node, LogIndex(0)));
                if record.index < log_run.last().unwrap_or(log_run.after) {
                    log_run.went_back_to = Some(record.index);
                }
                let place = log_run.place_of(record.index);
                let entry = Entry {
                    index: record.index,
                    logical: record.logical,
                    first_applied: record.real,
                    events: Vec::new(),
                };
                let place = place.unwrap_or_else(|place| {
                    log_run.entries.insert(place, entry);
                    place
                });
                log_run.entries[place].events.push(event);
            }
        }
    }
    done.extend(current.into_values());
    done
}

/// Every entry with events, in order. Where replicas disagree, the entry has the events of all versions: so
/// a grant that only one replica saw is not hidden by what the others saw.
pub(super) fn merged<'a>(log_runs: &[LogRun<'a>]) -> Vec<Entry<'a>> {
    let mut versions: Vec<&Entry<'a>> =
        log_runs.iter().flat_map(|log_run| &log_run.entries).collect();
    // What is equal stays in the order of the log_runs.
    versions.sort_by_key(|entry| entry.index);
    versions.chunk_by(|a, b| a.index == b.index).map(one_of_all).collect()
}

/// `versions` of one entry, at least one.
fn one_of_all<'a>(versions: &[&Entry<'a>]) -> Entry<'a> {
    let mut all = versions[0].clone();
    let mut different: Vec<&Entry<'a>> = Vec::new();
    for version in &versions[1..] {
        all.first_applied = all.first_applied.min(version.first_applied);
        let known = versions[..1].iter().chain(&different);
        if known.into_iter().all(|known| known.events != version.events) {
            different.push(version);
        }
    }
    all.events.extend(different.into_iter().flat_map(|version| &version.events));
    all
}

impl<'a> LogRun<'a> {
    fn new(node: NodeId, after: LogIndex) -> Self {
        LogRun { node, after, entries: Vec::new(), went_back_to: None }
    }

    pub(super) fn last(&self) -> Option<LogIndex> {
        self.entries.last().map(|entry| entry.index)
    }

    pub(super) fn entry(&self, index: LogIndex) -> Option<&Entry<'a>> {
        self.place_of(index).ok().map(|place| &self.entries[place])
    }

    /// Where an entry is, or where it would be. Nearly always that is the end.
    fn place_of(&self, index: LogIndex) -> Result<usize, usize> {
        match self.entries.last() {
            None => Err(0),
            Some(last) if last.index < index => Err(self.entries.len()),
            Some(last) if last.index == index => Ok(self.entries.len() - 1),
            Some(_) => self.entries.binary_search_by_key(&index, |entry| entry.index),
        }
    }
}
