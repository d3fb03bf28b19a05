//! Short words for what every test says.

use std::collections::BTreeMap;

use holdfast_wal::{
    Disk, GroupLog, HardState, LogEntry, LogEntryRef, Options, SimDisk, Snapshot, Wal,
};

/// Eight blocks a segment: small enough that a few turns fill one.
pub(crate) const SMALL: Options = Options { segment_bytes: 4096 };

/// What is recovered, by group; a group that nothing is known of is left out.
pub(crate) type Groups = BTreeMap<u32, GroupLog>;

pub(crate) fn open<D: Disk>(disk: &D) -> (Wal<D>, Groups) {
    let (wal, logs) = Wal::open(disk.clone(), SMALL).expect("the log opens");
    (wal, by_group(logs))
}

pub(crate) fn recovered(disk: &SimDisk) -> Groups {
    open(disk).1
}

pub(crate) fn by_group(logs: Vec<GroupLog>) -> Groups {
    let known = |log: &GroupLog| {
        log.hard_state != HardState::default() || log.snapshot.is_some() || !log.entries.is_empty()
    };
    logs.into_iter().filter(known).map(|log| (log.group, log)).collect()
}

pub(crate) fn entry(index: u64, term: u64, data: &[u8]) -> LogEntryRef<'_> {
    LogEntryRef { index, term, kind: 1, data }
}

pub(crate) fn owned(index: u64, term: u64, data: &[u8]) -> LogEntry {
    LogEntry { index, term, kind: 1, data: data.to_vec() }
}

pub(crate) fn append<D: Disk>(wal: &mut Wal<D>, group: u32, index: u64, term: u64, data: &[u8]) {
    wal.append(group, entry(index, term, data)).unwrap();
}

pub(crate) fn hard_state(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term, vote, commit }
}

pub(crate) fn snapshot(index: u64, term: u64, data: &[u8]) -> Snapshot {
    Snapshot { index, term, data: data.to_vec() }
}

pub(crate) fn indexes(log: &GroupLog) -> Vec<u64> {
    log.entries.iter().map(|entry| entry.index).collect()
}

/// Takes and announces a snapshot of the group's own log.
pub(crate) fn take_snapshot<D: Disk>(wal: &mut Wal<D>, group: u32, index: u64, term: u64) {
    let written = wal.snapshot_writer().write(group, &snapshot(index, term, b"state")).unwrap();
    wal.snapshot_written(written).unwrap();
}

pub(crate) fn names(disk: &SimDisk, suffix: &str) -> Vec<String> {
    disk.list().unwrap().into_iter().filter(|name| name.ends_with(suffix)).collect()
}
