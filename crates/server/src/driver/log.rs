//! The disk, as the driver uses it: one write and one sync for all groups of a turn, and the slow
//! work (snapshots, new segments) on a thread of its own.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_replica::{Durable, GroupId, SnapshotFile, Turn};
use holdfast_wal::{
    AppendError, DurableSnapshot, FileDisk, GroupLog, LogEntryRef, SnapshotError, SnapshotRef,
    Spare, Wal, WriteError,
};
use thiserror::Error;

use super::inbox::Input;
use super::queue::InboxSender;

/// A full disk is not asked for room at every turn.
const PREPARE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Past it, those groups are asked for a snapshot that need the oldest.
const SEGMENTS_MAX: u64 = 16;

/// Slow work on the disk, and what is to be said when it is done. One snapshot per group, what it made garbage,
/// and one segment are under way at most, so few wait.
type Job = Box<dyn FnOnce() -> Option<Input> + Send>;

#[derive(Debug)]
pub(super) struct Log {
    wal: Wal<FileDisk>,
    /// To the thread for slow work, which reports to the inbox.
    background: mpsc::Sender<Job>,
    segment_under_way: bool,
    /// After a failure, not before this moment.
    prepare_not_before: Option<Instant>,
}

/// The disk or the log refused.
#[derive(Debug, Error)]
pub(crate) enum LogError {
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

impl LogError {
    /// Why the disk takes nothing now though it holds all that it took. None if it has failed.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
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

/// Why the same is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The disk is full.
    NoSpace,
    /// The process has no descriptors or no memory for a file.
    NotNow,
}

impl Log {
    pub(super) fn new(mut wal: Wal<FileDisk>, inbox: InboxSender) -> std::io::Result<Log> {
        wal.leave_removal();
        let (background, jobs) = mpsc::channel::<Job>();
        // It ends when the log is dropped.
        thread::Builder::new().name("holdfast-disk".into()).spawn(move || {
            for job in jobs {
                if let Some(done) = job() {
                    inbox.send_and_wait(done);
                }
            }
        })?;
        Ok(Log { wal, background, segment_under_way: false, prepare_not_before: None })
    }

    /// Installs the snapshot of a turn. Before its entries are buffered.
    pub(super) fn install(&mut self, group: GroupId, file: &SnapshotFile) -> Result<(), LogError> {
        let installed = self.wal.install_snapshot(group.0, to_wal_snapshot(file));
        self.remove_garbage();
        Ok(installed?)
    }

    /// Adds a turn's entries and hard state to the next commit.
    pub(super) fn buffer(&mut self, group: GroupId, turn: &Turn) -> Result<(), LogError> {
        for entry in &turn.entries {
            let (index, term, kind) = (entry.index, entry.term, entry.kind);
            self.wal.append(group.0, LogEntryRef { index, term, kind, data: &entry.data })?;
        }
        if let Some(state) = turn.hard_state {
            let (term, vote, commit) = (state.term, state.vote, state.commit);
            self.wal.set_hard_state(group.0, holdfast_wal::HardState { term, vote, commit });
        }
        Ok(())
    }

    /// Makes durable what was buffered. Free if that is nothing.
    pub(super) fn commit(&mut self) -> Result<(), LogError> {
        let committed = self.wal.commit();
        // If there was no room, that may be the room.
        self.remove_garbage();
        committed?;
        let may_prepare = self.prepare_not_before.is_none_or(|moment| Instant::now() >= moment);
        if !self.segment_under_way && self.wal.spare_wanted() && may_prepare {
            self.segment_under_way = true;
            let preparer = self.wal.segment_preparer();
            self.in_background(move || Some(Input::SegmentPrepared(preparer.prepare())));
        }
        Ok(())
    }

    /// The groups whose entries keep more of the log on disk than there should be.
    pub(super) fn groups_in_the_way(&self) -> Vec<GroupId> {
        if self.wal.stats().segments <= SEGMENTS_MAX {
            return Vec::new();
        }
        self.wal.groups_pinning_oldest().into_iter().map(GroupId).collect()
    }

    pub(super) fn segment_prepared(&mut self, result: Result<Spare<FileDisk>, WriteError>) {
        self.segment_under_way = false;
        match result {
            Ok(spare) => self.wal.add_spare(spare),
            Err(error) => {
                tracing::warn!(%error, "a log segment could not be prepared ahead");
                self.prepare_not_before = Some(Instant::now() + PREPARE_AGAIN_AFTER);
            }
        }
    }

    /// Writes a snapshot of this node's own; the inbox hears of the end.
    pub(super) fn save(&self, group: GroupId, file: SnapshotFile) {
        let writer = self.wal.snapshot_writer();
        self.in_background(move || {
            let result = writer.write(group.0, to_wal_snapshot(&file));
            Some(Input::SnapshotSaved { group, result })
        });
    }

    /// Lets go of what the snapshot covers.
    pub(super) fn snapshot_saved(&mut self, written: DurableSnapshot) -> Result<(), LogError> {
        let taken_in = self.wal.snapshot_written(written);
        self.remove_garbage();
        Ok(taken_in?)
    }

    /// In the order in which it became garbage: there is one thread.
    fn remove_garbage(&mut self) {
        let Some(garbage) = self.wal.take_garbage() else { return };
        self.in_background(move || {
            // A disk that fails at it fails the next commit too.
            if let Err(error) = garbage.remove() {
                tracing::error!(%error, "what the log needs no more cannot be removed");
            }
            None
        });
    }

    fn in_background(&self, work: impl FnOnce() -> Option<Input> + Send + 'static) {
        if self.background.send(Box::new(work)).is_err() {
            tracing::error!("the thread for background work on the log is gone");
        }
    }
}

/// What the log recovered of a group, in the replica's terms.
pub(crate) fn to_durable(log: GroupLog) -> Durable {
    let state = log.hard_state;
    Durable {
        hard_state: holdfast_replica::HardState {
            term: state.term,
            vote: state.vote,
            commit: state.commit,
        },
        snapshot: log.snapshot.map(|snapshot| SnapshotFile {
            index: snapshot.index,
            term: snapshot.term,
            data: Bytes::from(snapshot.data),
        }),
        entries: log
            .entries
            .into_iter()
            .map(|entry| holdfast_replica::LogEntry {
                index: entry.index,
                term: entry.term,
                kind: entry.kind,
                data: Bytes::from(entry.data),
            })
            .collect(),
    }
}

pub(crate) fn to_wal_snapshot(file: &SnapshotFile) -> SnapshotRef<'_> {
    SnapshotRef { index: file.index, term: file.term, data: &file.data }
}
