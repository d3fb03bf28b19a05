//! Writes a turn into the log, for hosts: one write and one sync for all groups. After a full disk, the host repeats
//! the same call, and it continues where it stopped.

use holdfast_replica::{Durable, GroupId, HardState, LogEntry, SnapshotFile, Turn};
use holdfast_wal::{
    AppendError, Disk, DurableSnapshot, GroupLog, LogEntryRef, OpenError, Options, SnapshotError,
    SnapshotRef, Wal, WriteError,
};
use thiserror::Error;

/// The log of all groups of an engine. The host removes files that are no longer needed.
#[derive(Debug)]
pub struct TurnLog<D: Disk> {
    wal: Wal<D>,
    /// So many groups of the present turn are in the next commit.
    buffered: usize,
    /// The snapshot of the group after those is installed.
    is_installed: bool,
}

/// The disk or the log refused.
#[derive(Debug, Error)]
pub enum LogError {
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// Why the host must try the same write again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The disk is full.
    NoSpace,
    /// The process has no descriptors or no memory for a file.
    NotNow,
}

impl LogError {
    /// Why the disk takes no write now, although nothing written is lost. None if the disk has failed.
    pub fn obstacle(&self) -> Option<Obstacle> {
        match self {
            LogError::Write(error) | LogError::Snapshot(SnapshotError::Write(error)) => match error
            {
                WriteError::NoSpace { .. } => Some(Obstacle::NoSpace),
                WriteError::NotNow { .. } => Some(Obstacle::NotNow),
                WriteError::CommitBeyondLog { .. } | WriteError::Fatal(_) => None,
            },
            LogError::Append(_) | LogError::Snapshot(_) => None,
        }
    }
}

impl<D: Disk> TurnLog<D> {
    pub fn open(disk: D, options: Options) -> Result<(TurnLog<D>, Vec<GroupLog>), OpenError> {
        let (mut wal, recovered) = Wal::open(disk, options)?;
        wal.defer_removal();
        Ok((TurnLog { wal, buffered: 0, is_installed: false }, recovered))
    }

    /// Everything that these turns promise is durable when this returns `Ok`. After an obstacle, call it again with the
    /// same turns.
    pub fn persist(&mut self, turns: &[(GroupId, Turn)]) -> Result<(), LogError> {
        while let Some((group, turn)) = turns.get(self.buffered) {
            if let (Some(snapshot), false) = (&turn.snapshot, self.is_installed) {
                self.wal.install_snapshot(group.0, to_wal_snapshot(snapshot))?;
                self.is_installed = true;
            }
            self.buffer(*group, turn)?;
            self.buffered += 1;
            self.is_installed = false;
        }
        self.wal.sync_turn()?;
        self.buffered = 0;
        Ok(())
    }

    fn buffer(&mut self, group: GroupId, turn: &Turn) -> Result<(), LogError> {
        for LogEntry { index, term, kind, data } in &turn.entries {
            let entry = LogEntryRef { index: *index, term: *term, kind: *kind, data };
            self.wal.append(group.0, entry)?;
        }
        if let Some(HardState { term, vote, commit }) = turn.hard_state {
            self.wal.set_hard_state(group.0, holdfast_wal::HardState { term, vote, commit });
        }
        Ok(())
    }

    /// Drops the entries that a durable snapshot covers.
    pub fn snapshot_written(&mut self, written: DurableSnapshot) -> Result<(), LogError> {
        Ok(self.wal.snapshot_written(written)?)
    }

    /// The groups whose entries keep more segments on disk than this.
    pub fn groups_pinning_log(&self, segments_max: u64) -> Vec<GroupId> {
        if self.wal.stats().segments <= segments_max {
            return Vec::new();
        }
        self.wal.groups_pinning_oldest().into_iter().map(GroupId).collect()
    }

    /// For the slow work that a host does beside the turns: spare segments, snapshots, garbage.
    pub fn wal(&mut self) -> &mut Wal<D> {
        &mut self.wal
    }
}

/// What the log recovered of a group, in the replica's terms.
pub fn to_durable(log: GroupLog) -> Durable {
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

pub fn to_wal_snapshot(file: &SnapshotFile) -> SnapshotRef<'_> {
    SnapshotRef { index: file.index, term: file.term, data: &file.data }
}
