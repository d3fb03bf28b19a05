//! The disk, as the shard uses it: one write and one sync for all groups of a turn, and the slow
//! work (snapshots, new segments) on a thread of its own.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use holdfast_engine::{LogError, TurnLog, to_wal_snapshot};
use holdfast_replica::{GroupId, SnapshotFile, Turn};
use holdfast_wal::{DurableSnapshot, FileDisk, Spare, WriteError};

use crate::inbox::{InboxSender, Input};

/// A full disk is not asked for room at every turn.
const PREPARE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Past it, those groups are asked for a snapshot that need the oldest.
const SEGMENTS_MAX: u64 = 16;

/// Slow work on the disk, and what is to be said when it is done. One snapshot per group, what it made garbage,
/// and one segment are under way at most, so few wait.
type Job = Box<dyn FnOnce() -> Option<Input> + Send>;

#[derive(Debug)]
pub(super) struct Log {
    log: TurnLog<FileDisk>,
    background: Background,
    segment_under_way: bool,
    /// After a failure, not before this moment.
    prepare_not_before: Option<Instant>,
    /// What a test has the disk say, last first.
    #[cfg(test)]
    pub(super) refusals: Vec<WriteError>,
}

impl Log {
    pub(super) fn new(log: TurnLog<FileDisk>, inbox: InboxSender) -> std::io::Result<Log> {
        Ok(Log {
            log,
            background: Background::start(inbox)?,
            segment_under_way: false,
            prepare_not_before: None,
            #[cfg(test)]
            refusals: Vec::new(),
        })
    }

    /// Makes the turns durable.
    pub(super) fn persist(&mut self, turns: &[(GroupId, Turn)]) -> Result<(), LogError> {
        #[cfg(test)]
        if let Some(refusal) = self.refusals.pop() {
            return Err(refusal.into());
        }
        let persisted = self.log.persist(turns);
        // If there was no room, that may be the room.
        self.remove_garbage();
        persisted?;
        let may_prepare = self.prepare_not_before.is_none_or(|moment| Instant::now() >= moment);
        if !self.segment_under_way && self.log.wal().spare_wanted() && may_prepare {
            self.segment_under_way = true;
            let preparer = self.log.wal().segment_preparer();
            self.in_background(move || Some(Input::SegmentPrepared(preparer.prepare())));
        }
        Ok(())
    }

    /// The groups whose entries keep more of the log on disk than there should be.
    pub(super) fn groups_pinning_log(&self) -> Vec<GroupId> {
        self.log.groups_pinning_log(SEGMENTS_MAX)
    }

    pub(super) fn segment_prepared(&mut self, result: Result<Spare<FileDisk>, WriteError>) {
        self.segment_under_way = false;
        match result {
            Ok(spare) => self.log.wal().add_spare(spare),
            Err(error) => {
                tracing::warn!(%error, "a log segment could not be prepared ahead");
                self.prepare_not_before = Some(Instant::now() + PREPARE_AGAIN_AFTER);
            }
        }
    }

    /// Writes a snapshot of this node's own; the inbox hears of the end.
    pub(super) fn save(&mut self, group: GroupId, file: SnapshotFile) {
        let writer = self.log.wal().snapshot_writer();
        self.in_background(move || {
            let result = writer.write(group.0, to_wal_snapshot(&file));
            Some(Input::SnapshotSaved { group, result })
        });
    }

    /// Lets go of what the snapshot covers.
    pub(super) fn snapshot_saved(&mut self, written: DurableSnapshot) -> Result<(), LogError> {
        let taken_in = self.log.snapshot_written(written);
        self.remove_garbage();
        taken_in
    }

    /// In the order in which it became garbage: there is one thread.
    fn remove_garbage(&mut self) {
        let Some(garbage) = self.log.wal().take_garbage() else { return };
        self.in_background(move || {
            // A disk that fails at it fails the next commit too.
            if let Err(error) = garbage.remove() {
                tracing::error!(%error, "what the log needs no more cannot be removed");
            }
            None
        });
    }

    fn in_background(&self, work: impl FnOnce() -> Option<Input> + Send + 'static) {
        self.background.add(Box::new(work));
    }
}

/// The thread for slow work, which reports to the inbox.
///
/// Its jobs keep the data directory locked. So dropping it waits for the thread: when the shard has ended, another node can
/// start on the directory.
#[derive(Debug)]
struct Background {
    /// Taken when the thread is told to end.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    fn start(inbox: InboxSender) -> std::io::Result<Background> {
        let (sender, jobs) = mpsc::channel::<Job>();
        let work = move || {
            for job in jobs {
                if let Some(done) = job() {
                    inbox.send_and_wait(done);
                }
            }
        };
        let thread = thread::Builder::new().name("holdfast-disk".into()).spawn(work)?;
        Ok(Background { jobs: Some(sender), thread: Some(thread) })
    }

    fn add(&self, job: Job) {
        if self.jobs.as_ref().is_none_or(|jobs| jobs.send(job).is_err()) {
            tracing::error!("the thread for background work on the log is gone");
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.jobs = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread for background work on the log panicked");
        }
    }
}
