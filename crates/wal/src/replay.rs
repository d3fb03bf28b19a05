//! Replays the records of one group, and judges what came of it.
//!
//! The log of a group may begin anywhere up to the entry behind its snapshot: older segments are
//! deleted as wholes. Within what is left it must be without a gap, except where a restart says so.

use crate::block::Turn;
use crate::error::OpenError;
use crate::name;
use crate::record::{Record, SnapshotMark};
use crate::snapshot::LoadedSnapshot;
use crate::{GroupLog, HardState, LogEntry, LogEntryRef};

#[derive(Debug, Default)]
pub(crate) struct GroupReplay {
    hard_state: HardState,
    snapshot: Option<LoadedSnapshot>,
    /// The newest snapshot that the log speaks of.
    mark: SnapshotMark,
    /// The newest snapshot that the log restarted from.
    restart: Option<SnapshotMark>,
    /// The end of the log, which may lie within the snapshot; None before the first entry.
    last: Option<u64>,
    /// Entries that the snapshot made void were skipped.
    skipped: bool,
    entries: Vec<LogEntry>,
}

/// What a record meant for the segment it stands in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Entry(u64),
    LogReset,
    Other,
}

impl GroupReplay {
    pub(crate) fn new(snapshot: LoadedSnapshot) -> GroupReplay {
        GroupReplay { snapshot: Some(snapshot), ..GroupReplay::default() }
    }

    pub(crate) fn apply(&mut self, turn: Turn, record: Record<'_>) -> Result<Applied, String> {
        match record {
            Record::SegmentStart { .. } => {
                return Err("a segment starts within a segment".to_owned());
            }
            Record::Entry(entry) => return self.apply_entry(turn, entry),
            Record::HardState(state) => self.hard_state = state,
            Record::SnapshotMark(mark) => self.note_mark(mark),
            Record::LogReset(mark) if self.is_void(turn) => self.note_mark(mark),
            Record::LogReset(mark) => {
                self.note_mark(mark);
                self.entries.clear();
                self.last = Some(mark.index);
                self.restart = Some(mark);
                return Ok(Applied::LogReset);
            }
        }
        Ok(Applied::Other)
    }

    fn apply_entry(&mut self, turn: Turn, entry: LogEntryRef<'_>) -> Result<Applied, String> {
        if self.is_void(turn) {
            self.skipped = true;
            return Ok(Applied::Other);
        }
        let index = entry.index;
        if let Some(last) = self.last.filter(|last| index == 0 || index - 1 > *last) {
            return Err(format!("entry {index} follows entry {last}"));
        }
        #[cfg(feature = "planted")]
        if crate::planted::Bug::TruncationNotReplayed.is_active()
            && self.last.is_some_and(|last| last >= index)
        {
            return Ok(Applied::Entry(index));
        }
        while self.entries.last().is_some_and(|last| last.index >= index) {
            self.entries.pop();
        }
        self.last = Some(index);
        if index > self.snapshot_index() {
            self.entries.push(entry.to_owned());
        }
        Ok(Applied::Entry(index))
    }

    /// Whether the snapshot replaced what this turn says of the group's entries.
    fn is_void(&self, turn: Turn) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| turn <= snapshot.void_through)
    }

    fn note_mark(&mut self, mark: SnapshotMark) {
        if mark.index >= self.mark.index {
            self.mark = mark;
        }
    }

    fn snapshot_index(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |loaded| loaded.snapshot.index)
    }

    /// The restart that must be logged before the next entry, because the snapshot is beyond the log
    /// and a crash came before the log could say so.
    pub(crate) fn pending_reset(&self) -> Option<SnapshotMark> {
        let snapshot = &self.snapshot.as_ref()?.snapshot;
        let known = self.restart.is_some_and(|restart| restart.index >= snapshot.index);
        let beyond = self.skipped || self.last.is_some_and(|last| last < snapshot.index);
        (beyond && !known && self.entries.is_empty())
            .then_some(SnapshotMark { index: snapshot.index, term: snapshot.term })
    }

    /// `last_turn` is the last whole turn of the log.
    pub(crate) fn finish(self, group: u32, last_turn: Turn) -> Result<GroupLog, OpenError> {
        let inconsistent = |reason| Err(OpenError::Inconsistent { group, reason });
        let snapshot_index = self.snapshot_index();
        if snapshot_index < self.mark.index {
            return Err(OpenError::Missing {
                file: name::snapshot(group, self.mark.index),
                reason: "the log relies on it, and there is none newer".to_owned(),
            });
        }
        if let Some(LoadedSnapshot { snapshot, void_through }) = &self.snapshot {
            if snapshot.index == self.mark.index && snapshot.term != self.mark.term {
                let (found, expected) = (snapshot.term, self.mark.term);
                return inconsistent(format!("its snapshot has term {found}, not {expected}"));
            }
            if *void_through > last_turn {
                let (end, seen) = (last_turn.0, void_through.0);
                return inconsistent(format!(
                    "its snapshot saw turn {seen}, the log ends at {end}"
                ));
            }
        }
        if let Some(first) = self.entries.first().filter(|first| first.index - 1 > snapshot_index) {
            let (first, needed) = (first.index, snapshot_index + 1);
            return inconsistent(format!(
                "entry {needed} is needed, but the log begins at {first}"
            ));
        }
        let last = self.entries.last().map_or(snapshot_index, |entry| entry.index);
        if self.hard_state.commit > last {
            let commit = self.hard_state.commit;
            return inconsistent(format!(
                "entry {commit} is committed, but the log ends at {last}"
            ));
        }
        let snapshot = self.snapshot.map(|loaded| loaded.snapshot);
        let mut hard_state = self.hard_state;
        if let Some(snapshot) = &snapshot {
            // A snapshot holds only what is committed, and is durable before the turn that says so.
            hard_state.commit = hard_state.commit.max(snapshot.index);
            if hard_state.term < snapshot.term {
                hard_state = HardState { term: snapshot.term, vote: 0, ..hard_state };
            }
        }
        Ok(GroupLog { group, hard_state, snapshot, entries: self.entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64) -> Record<'static> {
        Record::Entry(LogEntryRef { index, term: 1, kind: 0, data: b"" })
    }

    #[test]
    fn entries_follow_each_other_without_a_gap() {
        let mut replay = GroupReplay::default();
        assert_eq!(replay.apply(Turn(1), entry(7)), Ok(Applied::Entry(7)), "wherever it begins");
        assert_eq!(replay.apply(Turn(1), entry(8)), Ok(Applied::Entry(8)));
        assert!(replay.apply(Turn(1), entry(10)).is_err());
        assert!(replay.apply(Turn(1), entry(0)).is_err(), "no entry has this number");
    }
}
