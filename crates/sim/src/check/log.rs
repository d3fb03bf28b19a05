//! The one log, put together from what the replicas did.
//!
//! A node's record is cut into *stretches*: within one, entries follow each other without a gap; a new one
//! begins when the node's table is restored. Entries without events leave no trace, so what a stretch
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
pub(super) struct Stretch<'a> {
    pub(super) node: NodeId,
    /// It holds what comes after this index.
    pub(super) after: LogIndex,
    pub(super) entries: BTreeMap<LogIndex, Entry<'a>>,
    /// An index that was recorded when a later one had been.
    pub(super) went_back_to: Option<LogIndex>,
}

/// What each node did, in the order of the record.
pub(super) fn stretches(history: &History) -> Vec<Stretch<'_>> {
    let mut current: BTreeMap<NodeId, Stretch<'_>> = BTreeMap::new();
    let mut done = Vec::new();
    for record in &history.replicated {
        match &record.what {
            Happening::Digest(_) => {}
            Happening::Restored => {
                let stretch = Stretch::new(record.node, record.index);
                done.extend(current.insert(record.node, stretch));
            }
            Happening::Event(event) => {
                let stretch = current
                    .entry(record.node)
                    .or_insert_with(|| Stretch::new(record.node, LogIndex(0)));
                let last =
                    stretch.entries.last_key_value().map_or(stretch.after, |(last, _)| *last);
                if record.index < last {
                    stretch.went_back_to = Some(record.index);
                }
                let entry = stretch.entries.entry(record.index).or_insert_with(|| Entry {
                    index: record.index,
                    logical: record.logical,
                    first_applied: record.real,
                    events: Vec::new(),
                });
                entry.events.push(event);
            }
        }
    }
    done.extend(current.into_values());
    done
}

/// Every entry with events, in order. Where replicas disagree, the entry has the events of all versions: so
/// a grant that only one replica saw is not hidden by what the others saw.
pub(super) fn merged(history: &History) -> Vec<Entry<'_>> {
    let mut versions: BTreeMap<LogIndex, Vec<Entry<'_>>> = BTreeMap::new();
    for entry in stretches(history).into_iter().flat_map(|stretch| stretch.entries.into_values()) {
        let known = versions.entry(entry.index).or_default();
        match known.iter_mut().find(|version| version.events == entry.events) {
            Some(same) => same.first_applied = same.first_applied.min(entry.first_applied),
            None => known.push(entry),
        }
    }
    versions
        .into_values()
        .filter_map(|versions| {
            versions.into_iter().reduce(|mut all, other| {
                all.first_applied = all.first_applied.min(other.first_applied);
                all.events.extend(other.events);
                all
            })
        })
        .collect()
}

impl Stretch<'_> {
    fn new(node: NodeId, after: LogIndex) -> Self {
        Stretch { node, after, entries: BTreeMap::new(), went_back_to: None }
    }
}
