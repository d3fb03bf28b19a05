//! The log itself: buffers a turn, writes it, and deletes the segments that snapshots cover.

use std::collections::{BTreeMap, VecDeque};

use crate::block::{self, BLOCK_BYTES, Sequence, Turn};
use crate::chunked_write::Urgency;
use crate::disk::{Disk, DiskFile};
use crate::error::{AppendError, OpenError, SnapshotError, WriteError};
use crate::garbage::Garbage;
use crate::name;
use crate::record::{self, Record, SnapshotMark};
use crate::recover::{Inventory, Recovery, Tail};
use crate::segment::{ActiveSegment, SegmentPreparer, SegmentSummary, Spare};
use crate::snapshot::{self, DurableSnapshot, SnapshotWriter};
use crate::store::Store;
use crate::{GroupLog, HardState, LogEntryRef, SnapshotRef};

/// The largest entry that the log takes.
pub const ENTRY_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The size of a segment, rounded up to whole blocks. A turn that is larger gets a segment of its
    /// own size.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { segment_bytes: 16 << 20 }
    }
}

/// How much the log holds on to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub segments: u64,
    /// The size of the segments on disk; snapshots and a spare segment are not counted.
    pub bytes: u64,
}

/// One append-only log for all Raft groups of a node.
///
/// A turn is any number of [`append`](Wal::append), [`set_hard_state`](Wal::set_hard_state),
/// [`snapshot_written`](Wal::snapshot_written) and [`install_snapshot`](Wal::install_snapshot), then one
/// [`sync_turn`](Wal::sync_turn). Nothing may be promised that depends on the turn (a vote, an acknowledgement) before
/// `sync_turn` has returned `Ok`; then all of it is durable. After a crash a turn is there as a whole or not at all.
/// (In this crate, "commit" means Raft's commit index, never a sync of the log.)
#[derive(Debug)]
pub struct Wal<D: Disk> {
    store: Store<D>,
    segment_blocks: u64,
    groups: BTreeMap<u32, GroupState>,
    /// Full segments, oldest first.
    full: VecDeque<SegmentSummary>,
    active: Option<ActiveSegment<D::File>>,
    spare: Option<Spare<D>>,
    next_sequence: Sequence,
    next_turn: Turn,
    /// The records of the open turn.
    payload: Vec<u8>,
    /// The blocks of the turn that is being written.
    blocks: Vec<u8>,
    /// Files to remove, if removal is deferred.
    garbage: Option<Vec<String>>,
    /// `blocks` are not yet known to be durable. Parts of them may be on disk, so nothing else may
    /// be written at their place until they are durable.
    in_flight: bool,
}

#[derive(Debug, Default)]
struct GroupState {
    hard_state: HardState,
    snapshot: SnapshotMark,
    last_index: u64,
    /// The commit index as of the last turn; what it covers is never overwritten.
    committed: u64,
    /// The highest index of the open turn, 0 if it has no entry of this group.
    turn_index_max: u64,
}

impl<D: Disk> Wal<D> {
    /// Recovers all that was acknowledged, cuts a turn that was not written whole, and makes what is
    /// left durable before it returns. A directory without a log is a new log.
    pub fn open(disk: D, options: Options) -> Result<(Wal<D>, Vec<GroupLog>), OpenError> {
        let inventory = Inventory::take(&disk)?;
        let mut recovery = Recovery::read(&disk, &inventory)?;
        let last_turn = recovery.last_turn();

        let mut wal = Wal {
            store: Store::new(disk),
            segment_blocks: options.segment_bytes.div_ceil(BLOCK_BYTES as u64).max(1),
            groups: BTreeMap::new(),
            full: VecDeque::new(),
            active: None,
            spare: None,
            next_sequence: Sequence(1),
            next_turn: last_turn.next(),
            payload: Vec::new(),
            blocks: Vec::new(),
            garbage: None,
            in_flight: false,
        };
        let mut logs = Vec::new();
        for (group, replay) in std::mem::take(&mut recovery.groups) {
            let pending_reset = replay.pending_reset();
            let log = replay.finish(group, last_turn)?;
            wal.groups.insert(group, GroupState::recovered(&log));
            logs.push(log);
            if let Some(mark) = pending_reset {
                record::put(&mut wal.payload, group, &Record::LogReset(mark));
            }
        }
        wal.tidy(&inventory, &recovery)?;
        if let Some(tail) = recovery.tail {
            wal.resume(recovery.segments, tail)?;
        }
        Ok((wal, logs))
    }

    /// Removes what no acknowledged turn needs.
    fn tidy(&self, inventory: &Inventory, recovery: &Recovery) -> Result<(), OpenError> {
        for name in inventory.leftovers.iter().chain(&recovery.unused) {
            let io = |source| OpenError::Io { file: name.clone(), source };
            self.store.disk.remove(name).map_err(io)?;
        }
        let io = |source| OpenError::Io { file: "the data directory".to_owned(), source };
        self.store.disk.sync_dir().map_err(io)
    }

    /// Makes the end of the log durable and clean, and continues there.
    ///
    /// The last turn is written once more, because its sync may have failed. After a failed sync,
    /// the operating system still shows the new blocks, although they are not on the disk, and does
    /// not write them again by itself. A torn turn is overwritten with zeros, because its remains
    /// could pass for a part of the next turn, which gets the same number.
    fn resume(&mut self, mut segments: Vec<SegmentSummary>, tail: Tail) -> Result<(), OpenError> {
        let Some(summary) = segments.pop() else { return Ok(()) };
        self.full = segments.into();
        self.next_sequence = summary.sequence.next();
        let name = name::segment(summary.sequence);
        let io = |source| OpenError::Io { file: name.clone(), source };
        let file = self.store.disk.open_for_turns(&name).map_err(io)?;
        let start = tail.last_turn_start.offset();
        let whole = (tail.end.offset() - start) as usize;
        let mut bytes = vec![0; whole + tail.torn_blocks as usize * BLOCK_BYTES];
        file.read_at(start, &mut bytes[..whole]).map_err(io)?;
        file.write_at(start, &bytes).map_err(io)?;
        file.sync_data().map_err(io)?;
        self.active = Some(ActiveSegment { summary, name, file, next_block: tail.end });
        Ok(())
    }

    /// Buffers an entry. An index that the group already has truncates the group's log from that index on (Raft's
    /// conflict rule). An index beyond the next one is refused, as is one that would replace a committed entry.
    pub fn append(&mut self, group: u32, entry: LogEntryRef<'_>) -> Result<(), AppendError> {
        self.store.poison.check()?;
        let state = self.groups.entry(group).or_default();
        let LogEntryRef { index, data, .. } = entry;
        let (expected, snapshot, commit) =
            (state.last_index.saturating_add(1), state.snapshot.index, state.committed);
        if index > expected {
            return Err(AppendError::Gap { group, expected, index });
        }
        if index <= snapshot {
            return Err(AppendError::Compacted { group, index, snapshot });
        }
        if index <= commit && index <= state.last_index {
            return Err(AppendError::Committed { group, index, commit });
        }
        let (bytes, bytes_max) = (data.len(), ENTRY_BYTES_MAX);
        if bytes > bytes_max {
            return Err(AppendError::TooLarge { group, index, bytes, bytes_max });
        }
        state.last_index = index;
        state.turn_index_max = state.turn_index_max.max(index);
        record::put(&mut self.payload, group, &Record::Entry(entry));
        Ok(())
    }

    /// Buffers a hard state. Its commit index must be in the group's log by the end of the turn.
    pub fn set_hard_state(&mut self, group: u32, hard_state: HardState) {
        #[cfg(feature = "planted")]
        let hard_state = match hard_state {
            _ if crate::planted::Bug::HardStateNotWritten.is_active() => HardState::default(),
            state if crate::planted::Bug::VoteNotWritten.is_active() => {
                HardState { vote: 0, ..state }
            }
            state => state,
        };
        self.groups.entry(group).or_default().hard_state = hard_state;
        record::put(&mut self.payload, group, &Record::HardState(hard_state));
    }

    /// Makes the open turn durable: one write, one sync. Does nothing if the turn is empty.
    ///
    /// After `NoSpace` and `NotNow` (no file descriptor is left, for example) the turn is still buffered, and another call
    /// tries again. What is added meanwhile may become a turn of its own, with its own sync. After `Fatal` nothing
    /// succeeds any more.
    pub fn sync_turn(&mut self) -> Result<(), WriteError> {
        self.store.poison.check()?;
        if self.in_flight {
            self.flush()?;
            self.delete_covered()?;
        }
        if self.payload.is_empty() {
            return Ok(());
        }
        for (group, state) in &self.groups {
            let (commit, last) = (state.hard_state.commit, state.last_index);
            if commit > last {
                return Err(WriteError::CommitBeyondLog { group: *group, commit, last });
            }
        }
        let started_segment = self.seal()?;
        self.flush()?;
        if started_segment { self.delete_covered() } else { Ok(()) }
    }

    /// Tells the log of a snapshot that [`SnapshotWriter::write`] made durable: removes the older ones of the group,
    /// and the segments that no group needs any more. A record of it (`SnapshotMark`) goes into the open turn.
    pub fn snapshot_written(&mut self, written: DurableSnapshot) -> Result<(), SnapshotError> {
        self.store.poison.check().map_err(WriteError::from)?;
        let DurableSnapshot { group, index, term } = written;
        let state = self.groups.entry(group).or_default();
        let previous = state.snapshot;
        if index < previous.index {
            // One that was installed meanwhile has overtaken it.
            self.remove(name::snapshot(group, index))?;
            return Ok(());
        }
        let last = state.last_index;
        if index > last {
            return Err(SnapshotError::BeyondLog { group, index, last });
        }
        let mark = SnapshotMark { index, term };
        state.snapshot = mark;
        record::put(&mut self.payload, group, &Record::SnapshotMark(mark));
        self.remove_replaced(group, previous, index)?;
        self.delete_covered()?;
        Ok(())
    }

    /// Writes a snapshot that another node sent, durably, and resets the group's log to it: all the group's entries are
    /// dropped, and the next one has the index after the snapshot's. Raft installs a snapshot only if the log does not
    /// contain the snapshot's last entry, so no acknowledged entry after it is lost.
    ///
    /// Once it has returned, recovery after a crash finds the group with this snapshot, whether or not the open turn is
    /// durable.
    pub fn install_snapshot<'a>(
        &mut self,
        group: u32,
        snapshot: impl Into<SnapshotRef<'a>>,
    ) -> Result<(), SnapshotError> {
        let snapshot = snapshot.into();
        self.store.poison.check().map_err(WriteError::from)?;
        // A turn in flight may hold entries that the snapshot supersedes. Up to turn `void_through`, the log's entries
        // of this group no longer count. It is taken from `next_turn`, which rises only in `flush`, so a turn in flight
        // is written first.
        if self.in_flight {
            self.flush()?;
        }
        let SnapshotRef { index, term, .. } = snapshot;
        let state = self.groups.entry(group).or_default();
        let commit = state.committed.max(state.snapshot.index);
        if index < commit {
            return Err(SnapshotError::BeforeCommit { group, index, commit });
        }
        let void_through = self.next_turn.previous();
        let _durable = snapshot::write(&self.store, group, snapshot, void_through)?;

        let mark = SnapshotMark { index, term };
        let previous = std::mem::replace(&mut state.snapshot, mark);
        state.last_index = index;
        state.turn_index_max = 0;
        record::put(&mut self.payload, group, &Record::LogReset(mark));
        for summary in self.full.iter_mut().chain(self.active.as_mut().map(|a| &mut a.summary)) {
            summary.index_max.remove(&group);
        }
        self.remove_replaced(group, previous, index)?;
        self.delete_covered()?;
        Ok(())
    }

    /// From now on the log removes nothing itself. What no group needs any more is to be had from
    /// [`take_garbage`](Wal::take_garbage).
    pub fn defer_removal(&mut self) {
        self.garbage.get_or_insert_default();
    }

    /// What has become garbage since the last time. The caller must remove what an earlier call returned before what a
    /// later one did.
    pub fn take_garbage(&mut self) -> Option<Garbage<D>> {
        let names = std::mem::take(self.garbage.as_mut()?);
        (!names.is_empty()).then(|| Garbage { store: self.store.clone(), names })
    }

    /// Takes over a segment that was prepared ahead of use. Give one only when it is wanted: a second one replaces the
    /// first, whose temporary file then stays until the log is opened again.
    pub fn add_spare(&mut self, spare: Spare<D>) {
        self.spare = Some(spare);
    }

    /// Whether no spare is ready, and the active segment is at least half used, or missing.
    pub fn spare_wanted(&self) -> bool {
        let half_used =
            |active: &ActiveSegment<D::File>| active.blocks_left() <= active.summary.blocks / 2;
        self.spare.is_none() && self.active.as_ref().is_none_or(half_used)
    }

    pub fn segment_preparer(&self) -> SegmentPreparer<D> {
        SegmentPreparer { store: self.store.clone(), blocks: self.segment_blocks }
    }

    pub fn snapshot_writer(&self) -> SnapshotWriter<D> {
        SnapshotWriter { store: self.store.clone() }
    }

    /// The groups whose entries keep the oldest segment from being deleted. A snapshot of each of them
    /// lets it go. Empty while the oldest segment is the active one.
    pub fn groups_pinning_oldest(&self) -> Vec<u32> {
        self.full.front().map(|oldest| self.pinning(oldest).collect()).unwrap_or_default()
    }

    pub fn stats(&self) -> Stats {
        let active = self.active.as_ref().map(|active| &active.summary);
        let mut stats = Stats::default();
        for summary in self.full.iter().chain(active) {
            stats.segments += 1;
            stats.bytes += summary.bytes();
        }
        stats
    }

    /// Gives the open turn its place and its number. True if it starts a segment.
    fn seal(&mut self) -> Result<bool, WriteError> {
        let blocks = block::blocks_for(self.payload.len());
        let fits = self.active.as_ref().is_some_and(|active| blocks <= active.blocks_left());
        if !fits {
            self.start_segment()?;
        }
        let Some(active) = &mut self.active else { return Ok(false) };
        for (group, state) in &mut self.groups {
            if state.turn_index_max > 0 {
                active.summary.note(*group, state.turn_index_max);
                state.turn_index_max = 0;
            }
            state.committed = state.hard_state.commit;
        }
        let (sequence, first) = (active.summary.sequence, active.next_block);
        block::encode_turn(&mut self.blocks, sequence, first, self.next_turn, &self.payload);
        self.payload.clear();
        self.in_flight = true;
        Ok(!fits)
    }

    /// Writes the turn in flight. The same bytes go to the same place however often it is tried.
    fn flush(&mut self) -> Result<(), WriteError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        let poison = &self.store.poison;
        active
            .file
            .write_at(active.next_block.offset(), &self.blocks)
            .map_err(|error| poison.no_space_or_fatal("write", &active.name, &error))?;
        let sync = |file: &D::File| file.sync_data();
        #[cfg(feature = "planted")]
        let sync = |file: &D::File| {
            if crate::planted::Bug::NoSync.is_active() { Ok(()) } else { sync(file) }
        };
        sync(&active.file).map_err(|error| poison.fatal("sync", &active.name, &error))?;
        active.next_block = active.next_block.plus((self.blocks.len() / BLOCK_BYTES) as u64);
        self.next_turn = self.next_turn.next();
        self.in_flight = false;
        Ok(())
    }

    /// Begins a segment that is large enough, and puts in front of the open turn what the segment must
    /// know so that all older ones can be deleted.
    fn start_segment(&mut self) -> Result<(), WriteError> {
        let mut start = Vec::new();
        record::put(&mut start, 0, &Record::SegmentStart { blocks: 0 });
        for (group, state) in &self.groups {
            record::put(&mut start, *group, &Record::HardState(state.hard_state));
            record::put(&mut start, *group, &Record::SnapshotMark(state.snapshot));
        }
        let needed = block::blocks_for(start.len() + self.payload.len());
        let spare = match self.spare.take_if(|spare| spare.blocks >= needed) {
            Some(spare) => spare,
            None => {
                Spare::prepare(&self.store, self.segment_blocks.max(needed), Urgency::LogWaits)?
            }
        };
        let mut first = Vec::new();
        record::put(&mut first, 0, &Record::SegmentStart { blocks: spare.blocks });
        start[..first.len()].copy_from_slice(&first);

        let active = spare.activate(&self.store, self.next_sequence)?;
        self.next_sequence = self.next_sequence.next();
        if let Some(full) = self.active.replace(active) {
            self.full.push_back(full.summary);
        }
        self.payload.splice(..0, start);
        Ok(())
    }

    fn remove_replaced(
        &mut self,
        group: u32,
        previous: SnapshotMark,
        index: u64,
    ) -> Result<(), WriteError> {
        if previous.index == 0 || previous.index == index {
            return Ok(());
        }
        self.remove(name::snapshot(group, previous.index))
    }

    /// Deletes segments from the oldest on, each durably before the next: a crash must not leave a gap.
    fn delete_covered(&mut self) -> Result<(), WriteError> {
        // Until the first turn of the active segment is durable, the segment before it is the only one
        // that knows the hard states.
        if self.in_flight {
            return Ok(());
        }
        while let Some(oldest) = self.full.front() {
            if self.pinning(oldest).next().is_some() {
                break;
            }
            self.remove(name::segment(oldest.sequence))?;
            self.full.pop_front();
        }
        Ok(())
    }

    fn remove(&mut self, name: String) -> Result<(), WriteError> {
        match &mut self.garbage {
            Some(garbage) => {
                garbage.push(name);
                Ok(())
            }
            None => self.store.remove([name.as_str()]),
        }
    }

    fn pinning<'a>(&'a self, segment: &'a SegmentSummary) -> impl Iterator<Item = u32> + 'a {
        segment.index_max.iter().filter_map(|(group, index_max)| {
            let covered = self.groups.get(group).map_or(0, |state| state.snapshot.index);
            #[cfg(feature = "planted")]
            let covered = if crate::planted::Bug::SegmentDeletedTooSoon.is_active() {
                *index_max
            } else {
                covered
            };
            (*index_max > covered).then_some(*group)
        })
    }
}

impl GroupState {
    fn recovered(log: &GroupLog) -> GroupState {
        let snapshot = log.snapshot.as_ref().map_or(SnapshotMark::default(), |snapshot| {
            SnapshotMark { index: snapshot.index, term: snapshot.term }
        });
        GroupState {
            hard_state: log.hard_state,
            snapshot,
            last_index: log.entries.last().map_or(snapshot.index, |entry| entry.index),
            committed: log.hard_state.commit,
            turn_index_max: 0,
        }
    }
}
