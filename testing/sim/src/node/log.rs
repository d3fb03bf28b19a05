//! The real log on a simulated disk, used in the order of the real driver: install a snapshot, buffer
//! the entries, one commit. A full disk leaves a turn where it is, and the same steps go on later.

use holdfast_replica::{Durable, GroupId, HardState, LogEntry, SnapshotFile, Turn};
use holdfast_wal::{
    GroupLog, LogEntryRef, OpenError, Options, SimDisk, SnapshotError, SnapshotRef, Wal, WriteError,
};

/// The one group that runs.
pub(super) const GROUP: GroupId = GroupId(1);
/// Past it the replica is asked for a snapshot. Few and small, so that a run sees many of them go.
const SEGMENTS_MAX: u64 = 6;

#[derive(Debug)]
pub(super) struct Log {
    wal: Wal<SimDisk>,
}

/// A turn on its way to the disk, and how far it got.
#[derive(Debug)]
pub(super) struct HalfTurn {
    pub(super) turn: Turn,
    installed: bool,
    buffered: bool,
}

impl HalfTurn {
    pub(super) fn new(turn: Turn) -> HalfTurn {
        HalfTurn { turn, installed: false, buffered: false }
    }
}

/// Why a turn is not durable.
#[derive(Debug)]
pub(super) enum PersistError {
    /// The same may succeed once there is room.
    OutOfSpace,
    /// The node stops.
    Fatal(String),
}

impl Log {
    /// A new process opens the log.
    pub(super) fn open(disk: &SimDisk, segment_bytes: u64) -> Result<(Log, Durable), OpenError> {
        let (mut wal, recovered) = Wal::open(disk.clone(), Options { segment_bytes })?;
        let ours = recovered.into_iter().find(|log| log.group == GROUP.0);
        // As in a real node, files go a while after they have become garbage.
        wal.leave_removal();
        Ok((Log { wal }, ours.map(to_durable).unwrap_or_default()))
    }

    /// Everything that a turn promises is durable when this returns `Ok`.
    pub(super) fn persist(&mut self, half: &mut HalfTurn) -> Result<(), PersistError> {
        if let (Some(snapshot), false) = (&half.turn.snapshot, half.installed) {
            self.wal.install_snapshot(GROUP.0, to_wal_snapshot(snapshot))?;
            half.installed = true;
        }
        if !half.buffered {
            half.buffered = true;
            self.buffer(&half.turn)?;
        }
        self.commit()
    }

    fn buffer(&mut self, turn: &Turn) -> Result<(), PersistError> {
        for LogEntry { index, term, kind, data } in &turn.entries {
            let entry = LogEntryRef { index: *index, term: *term, kind: *kind, data };
            self.wal
                .append(GROUP.0, entry)
                .map_err(|error| PersistError::Fatal(error.to_string()))?;
        }
        if let Some(HardState { term, vote, commit }) = turn.hard_state {
            self.wal.set_hard_state(GROUP.0, holdfast_wal::HardState { term, vote, commit });
        }
        Ok(())
    }

    /// Makes durable what was buffered. Free if that is nothing.
    pub(super) fn commit(&mut self) -> Result<(), PersistError> {
        let garbage = self.wal.take_garbage();
        let committed = self.wal.commit();
        if let Some(garbage) = garbage {
            garbage.remove()?;
        }
        committed?;
        if self.wal.spare_wanted() {
            // A segment that could not be prepared ahead is made when it is needed.
            if let Ok(spare) = self.wal.segment_preparer().prepare() {
                self.wal.add_spare(spare);
            }
        }
        Ok(())
    }

    pub(super) fn is_in_the_way(&self) -> bool {
        self.wal.stats().segments > SEGMENTS_MAX
            && self.wal.groups_pinning_oldest().contains(&GROUP.0)
    }

    /// Saves a snapshot of this node's own, and lets go of what it covers.
    pub(super) fn save(&mut self, file: &SnapshotFile) -> Result<(), PersistError> {
        let written = self.wal.snapshot_writer().write(GROUP.0, to_wal_snapshot(file))?;
        Ok(self.wal.snapshot_written(written)?)
    }
}

/// What `snapshot restore` writes.
pub(super) fn furnish(
    disk: &SimDisk,
    segment_bytes: u64,
    state: &SnapshotFile,
) -> Result<(), String> {
    let (mut wal, _) =
        Wal::open(disk.clone(), Options { segment_bytes }).map_err(|error| error.to_string())?;
    wal.install_snapshot(GROUP.0, to_wal_snapshot(state)).map_err(|error| error.to_string())?;
    let (term, commit) = (state.term, state.index);
    wal.set_hard_state(GROUP.0, holdfast_wal::HardState { term, vote: 0, commit });
    wal.commit().map_err(|error| error.to_string())
}

impl From<WriteError> for PersistError {
    fn from(error: WriteError) -> PersistError {
        match error {
            WriteError::NoSpace { .. } | WriteError::NotNow { .. } => PersistError::OutOfSpace,
            other => PersistError::Fatal(other.to_string()),
        }
    }
}

impl From<SnapshotError> for PersistError {
    fn from(error: SnapshotError) -> PersistError {
        match error {
            SnapshotError::Write(error) => error.into(),
            other => PersistError::Fatal(other.to_string()),
        }
    }
}

fn to_durable(log: GroupLog) -> Durable {
    let state = log.hard_state;
    let entry = |entry: holdfast_wal::LogEntry| LogEntry {
        index: entry.index,
        term: entry.term,
        kind: entry.kind,
        data: entry.data.into(),
    };
    Durable {
        hard_state: HardState { term: state.term, vote: state.vote, commit: state.commit },
        snapshot: log.snapshot.map(|snapshot| SnapshotFile {
            index: snapshot.index,
            term: snapshot.term,
            data: snapshot.data.into(),
        }),
        entries: log.entries.into_iter().map(entry).collect(),
    }
}

fn to_wal_snapshot(file: &SnapshotFile) -> SnapshotRef<'_> {
    SnapshotRef { index: file.index, term: file.term, data: &file.data }
}
