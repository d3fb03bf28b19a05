//! The log as consensus reads it: the entries since the last compaction, in memory. The shard writes a copy to disk.

use std::collections::VecDeque;

use bytes::Bytes;

/// One entry of the group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub index: u64,
    pub term: u64,
    /// Used by consensus: a batch of commands, a note, or a membership change.
    pub kind: u8,
    pub data: Bytes,
}

/// What must survive a crash besides the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
}

/// A snapshot of the group: its members and its lock table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    pub index: u64,
    pub term: u64,
    pub data: Bytes,
}

/// What a replica finds on disk when it starts.
#[derive(Debug, Default)]
pub struct Durable {
    pub hard_state: HardState,
    pub snapshot: Option<SnapshotFile>,
    /// Contiguous, from just after the snapshot or earlier.
    pub entries: Vec<LogEntry>,
}

/// Why entries cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Compacted,
    Unavailable,
}

#[derive(Debug)]
pub(crate) struct LogStore {
    pub(crate) hard_state: HardState,
    /// The last entry that was compacted.
    compacted_index: u64,
    compacted_term: u64,
    entries: VecDeque<LogEntry>,
    bytes: u64,
}

impl LogStore {
    pub(crate) fn new(hard_state: HardState, compacted_index: u64, compacted_term: u64) -> Self {
        let entries = VecDeque::new();
        LogStore { hard_state, compacted_index, compacted_term, entries, bytes: 0 }
    }

    /// Appends. An entry at a used index replaces the tail from there on. Returns false if there would be a gap, or if
    /// the index was compacted.
    pub(crate) fn append(&mut self, entry: LogEntry) -> bool {
        if entry.index <= self.compacted_index || entry.index > self.last_index() + 1 {
            return false;
        }
        while self.last_index() >= entry.index {
            if let Some(cut) = self.entries.pop_back() {
                self.bytes -= cut.data.len() as u64;
            }
        }
        self.bytes += entry.data.len() as u64;
        self.entries.push_back(entry);
        true
    }

    /// Drops the entries up to and including `index`.
    pub(crate) fn compact(&mut self, index: u64) {
        while self.entries.front().is_some_and(|first| first.index <= index) {
            if let Some(cut) = self.entries.pop_front() {
                self.bytes -= cut.data.len() as u64;
                self.compacted_index = cut.index;
                self.compacted_term = cut.term;
            }
        }
    }

    /// Drops more entries, oldest first and up to `index` at most, until at most `bytes_max` are left.
    pub(crate) fn compact_to_bytes(&mut self, index: u64, bytes_max: u64) {
        while self.bytes > bytes_max
            && let Some(first) = self.entries.front().filter(|first| first.index <= index)
        {
            self.compact(first.index);
        }
    }

    /// Drops all entries, because a snapshot of the leader replaces them.
    pub(crate) fn reset(&mut self, index: u64, term: u64) {
        self.entries.clear();
        self.bytes = 0;
        self.compacted_index = index;
        self.compacted_term = term;
    }

    pub(crate) fn first_index(&self) -> u64 {
        self.compacted_index + 1
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.entries.back().map_or(self.compacted_index, |last| last.index)
    }

    pub(crate) fn term(&self, index: u64) -> Result<u64, Missing> {
        if index == self.compacted_index {
            return Ok(self.compacted_term);
        }
        self.position(index).map(|position| self.entries[position].term)
    }

    /// The entries of `[low, high)`, at most `bytes_max` of data but at least one entry.
    pub(crate) fn slice(
        &self,
        low: u64,
        high: u64,
        bytes_max: u64,
    ) -> Result<impl Iterator<Item = &LogEntry>, Missing> {
        let start = self.position(low)?;
        let end = start + usize::try_from(high.saturating_sub(low)).unwrap_or(usize::MAX);
        if high > self.last_index() + 1 {
            return Err(Missing::Unavailable);
        }
        let mut bytes = 0;
        Ok(self.entries.range(start..end).enumerate().map_while(move |(n, entry)| {
            bytes += entry.data.len() as u64;
            (n == 0 || bytes <= bytes_max).then_some(entry)
        }))
    }

    /// From the newest to the oldest.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter().rev()
    }

    /// Of all entries that are here.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn position(&self, index: u64) -> Result<usize, Missing> {
        if index <= self.compacted_index {
            return Err(Missing::Compacted);
        }
        if index > self.last_index() {
            return Err(Missing::Unavailable);
        }
        usize::try_from(index - self.compacted_index - 1).map_err(|_| Missing::Unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> LogEntry {
        LogEntry { index, term, kind: 0, data: Bytes::from_static(b"12345678") }
    }

    fn store(last: u64) -> LogStore {
        let mut store = LogStore::new(HardState::default(), 0, 0);
        for index in 1..=last {
            assert!(store.append(entry(index, 1)));
        }
        store
    }

    #[test]
    fn an_entry_at_a_used_index_replaces_the_tail() {
        let mut store = store(5);
        assert!(store.append(entry(3, 2)));
        assert_eq!(store.last_index(), 3);
        assert_eq!(store.term(3), Ok(2));
        assert_eq!(store.term(4), Err(Missing::Unavailable));
        assert_eq!(store.bytes(), 24);
    }

    #[test]
    fn reads_in_gaps_and_below_the_compacted_index_are_refused() {
        let mut store = store(5);
        assert!(!store.append(entry(7, 1)));
        store.compact(3);
        assert!(!store.append(entry(3, 2)));
        assert_eq!(store.first_index(), 4);
        assert_eq!(store.term(3), Ok(1));
        assert_eq!(store.term(2), Err(Missing::Compacted));
    }

    #[test]
    fn the_byte_count_is_that_of_the_kept_entries() {
        let mut store = store(6);
        store.compact(2);
        assert_eq!(store.bytes(), 32);
        store.append(entry(5, 2));
        assert_eq!(store.bytes(), 24);
        store.reset(40, 3);
        assert_eq!((store.bytes(), store.first_index(), store.last_index()), (0, 41, 40));
        assert_eq!(store.term(40), Ok(3));
        assert!(store.append(entry(41, 3)));
        assert_eq!(store.bytes(), 8);
    }

    #[test]
    fn a_slice_has_the_requested_bounds_after_a_compaction_too() {
        let mut store = store(9);
        store.compact(3);
        let indexes = |low, high| {
            let slice = store.slice(low, high, u64::MAX);
            slice.map(|entries| entries.map(|entry| entry.index).collect::<Vec<_>>())
        };
        assert_eq!(indexes(4, 7), Ok(vec![4, 5, 6]));
        assert_eq!(indexes(6, 10), Ok(vec![6, 7, 8, 9]));
        assert_eq!(indexes(3, 5), Err(Missing::Compacted));
        assert_eq!(indexes(6, 11), Err(Missing::Unavailable));
        assert_eq!(indexes(10, 11), Err(Missing::Unavailable));
        let newest: Vec<u64> = store.newest_first().map(|entry| entry.index).collect();
        assert_eq!(newest, [9, 8, 7, 6, 5, 4]);
    }

    #[test]
    fn kept_entries_are_bounded_in_bytes_but_never_past_the_snapshot() {
        let mut store = store(10);
        store.compact_to_bytes(6, 40);
        assert_eq!((store.first_index(), store.bytes()), (6, 40));
        store.compact_to_bytes(6, 0);
        assert_eq!(store.first_index(), 7);
    }

    #[test]
    fn a_slice_holds_at_least_one_entry_and_no_more_bytes_than_asked_for() {
        let store = store(5);
        let indexes =
            |bytes_max| store.slice(2, 6, bytes_max).unwrap().map(|e| e.index).collect::<Vec<_>>();
        assert_eq!(indexes(0), [2]);
        assert_eq!(indexes(16), [2, 3]);
        assert_eq!(indexes(u64::MAX), [2, 3, 4, 5]);
        assert!(store.slice(2, 7, 1).is_err());
    }
}
