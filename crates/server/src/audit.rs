//! The audit file: every event, as a line of JSON.
//!
//! It reads the ring of events like any watcher, so no request waits for its disk. If it falls so far behind that the
//! ring has forgotten what it did not write yet, it says so in a line of its own, with how many are missing. While much
//! happens it looks every [`LOOK_EVERY`], and then writes all there is. After a restart it continues after the last
//! line of the file, so that events which the replayed log records again are not written twice.
//!
//! Besides events it has lines about callers ([`AuditNotes`]): who was denied what, who logged in, and who asked for an
//! intervention, for a change of the cluster or the policy, or for a snapshot. Lines about sessions say from where
//! their clients came, at the node that they came to.
//!
//! It holds no secret: sessions appear by their public ids, credentials by what is public of them, and what holders say
//! of themselves (metadata) is left out.
//!
//! While it cannot be written, the service may refuse changes, or reads as well ([`AuditGate`]). Then the node also
//! hands the leadership over: another node may have a disk.

mod file;
mod json_writer;
pub(crate) mod line;
mod lines;
mod notes;
mod short_names;
mod utc;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::Event;
use holdfast_replica::GroupId;
use holdfast_service::AuditGate;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::file::AuditFile;
pub use self::file::AuditFileError;
pub(crate) use self::lines::Lines;
pub(crate) use self::notes::AuditNotes;
use self::notes::{DENIALS_EVERY, Note};
pub use self::utc::utc;
use crate::events::{EventRing, Pace, Position, Recorded};
use crate::inbox::{Input, ShardHandle};
use crate::membership::Electorate;
use crate::metrics::Metrics;
use crate::shard::unix_ms;
use crate::stopping::Stopping;

/// Events taken from the ring at one time.
const EVENTS_PER_LOOK: usize = 1_024;
/// Written in one go: few calls, and still in the processor's cache.
const WRITE_BYTES: usize = 256 << 10;
/// Then it is time to look whether the node stops, or who leads.
const WRITES_PER_ROUND: usize = 64;
/// Long enough that waking does not count, and a small part of what the ring holds even at full load.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A disk that takes longer is taken for one that fails.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// If no node can write, the leadership does not go round all the time.
const HAND_OVER_EVERY: Duration = Duration::from_secs(30);

/// Where the lines go, and how many are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuditSettings {
    pub(crate) file: PathBuf,
    pub(crate) bytes_max: u64,
    /// Older files beside the one that is written.
    pub(crate) kept: u64,
}

#[derive(Debug)]
pub(crate) struct Audit {
    events: Arc<EventRing>,
    shard: ShardHandle,
    electorate: watch::Receiver<Electorate>,
    /// The file has everything up to this index. When the log is applied again, the voters up to here are not written
    /// again.
    found_through: Option<u64>,
    metrics: Arc<Metrics>,
    file: AuditFile,
    /// What was written last; none in a new file.
    position: Option<Position>,
    /// The number of the next event, by the ring's own count; none before the first.
    expected: Option<u64>,
    /// Events after this position are no longer in the ring: it forgot them, or a snapshot stands for them. That has no
    /// line yet.
    skipped_after: Option<Position>,
    lines: Lines,
    notes: Arc<AuditNotes>,
    gate: Arc<AuditGate>,
    /// Events are missing in the file, and the writer has not caught up with the ring since.
    has_gap: bool,
    is_last_round: bool,
}

/// Gives the leadership up if this node refuses requests because of its file.
#[derive(Debug)]
struct HandOver {
    shard: ShardHandle,
    gate: Arc<AuditGate>,
    done_at: Option<Instant>,
}

impl Audit {
    /// Opens the file, or fails: who wants an audit should not run without one unawares.
    pub(crate) fn open(
        settings: &AuditSettings,
        events: Arc<EventRing>,
        shard: ShardHandle,
        mut electorate: watch::Receiver<Electorate>,
        metrics: Arc<Metrics>,
        notes: Arc<AuditNotes>,
        gate: Arc<AuditGate>,
    ) -> Result<Audit, AuditFileError> {
        let (file, position) = AuditFile::open(settings)?;
        let lines = Lines::new(&events);
        electorate.mark_changed();
        Ok(Audit {
            events,
            shard,
            electorate,
            found_through: position.map(|position: Position| position.index),
            metrics,
            file,
            position,
            expected: None,
            skipped_after: None,
            lines,
            notes,
            gate,
            has_gap: false,
            is_last_round: false,
        })
    }

    /// Writes until the node stops, and then what is left. To be called once the ring has its beginning.
    pub(crate) async fn keep_writing(mut self, stopping: Stopping) {
        let mut news = self.events.news();
        let mut leadership = self.shard.watch_leadership(GroupId::FIRST);
        leadership.mark_changed();
        let mut pace = Pace::new(LOOK_EVERY);
        let (shard, gate) = (self.shard.clone(), Arc::clone(&self.gate));
        let mut hand_over = HandOver { shard, gate, done_at: None };
        loop {
            let is_last_round = stopping.has_begun();
            self.is_last_round = is_last_round;
            let is_waiting = self.file.is_waiting();
            self.begin_file();
            if !is_waiting && leadership.has_changed().unwrap_or(false) {
                let now = *leadership.borrow_and_update();
                if !now.is_here {
                    // Their clients come to another node now, perhaps with other credentials.
                    self.lines.forget_origins();
                }
                let line = line::leadership(now, self.position(), unix_ms());
                self.file.lines().extend_from_slice(&line);
            }
            if !is_waiting {
                self.write_electorate();
            }
            news.borrow_and_update();
            let caught_up;
            (self, caught_up) = self.catch_up(&mut hand_over).await;
            match caught_up {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) if is_last_round => return,
                Err(_) => {
                    hand_over.begin();
                    sleep(PAUSE).await;
                    continue;
                }
            }
            if is_last_round {
                return;
            }
            let more = async {
                let changed = news.changed().await;
                pace.keep().await;
                changed
            };
            let mut electorate = self.electorate.clone();
            let notes = Arc::clone(&self.notes);
            let noted = async {
                // Denials that were only counted get a line with their number.
                let _ = timeout(DENIALS_EVERY, notes.news()).await;
                sleep(LOOK_EVERY).await;
            };
            tokio::select! {
                () = noted => {}
                changed = more => if changed.is_err() { return },
                Ok(()) = leadership.changed() => leadership.mark_changed(),
                Ok(()) = electorate.changed() => {}
                () = stopping.begun() => {}
            }
        }
    }

    /// Who votes and who learns, if that is news.
    fn write_electorate(&mut self) {
        if !self.electorate.has_changed().unwrap_or(false) {
            return;
        }
        let now = self.electorate.borrow_and_update().clone();
        // A node that is to join knows no other node yet.
        let is_known = !now.configuration.voters.is_empty();
        if is_known && self.found_through.is_none_or(|found| now.index > found) {
            let line = line::membership(&now.configuration, self.position(), unix_ms());
            self.file.lines().extend_from_slice(&line);
        }
    }

    /// On a thread that may wait for the disk. After a failure the same lines are tried again.
    async fn catch_up(mut self, hand_over: &mut HandOver) -> (Audit, io::Result<bool>) {
        let (gate, metrics) = (Arc::clone(&self.gate), Arc::clone(&self.metrics));
        let set_failing = |is_failing| {
            gate.set_failing(is_failing);
            metrics.audit.failing.set(u64::from(is_failing));
        };
        let writing = spawn_blocking(move || {
            let caught_up = self.write();
            (self, caught_up)
        });
        let written = until_written(writing, WRITE_PATIENCE, || {
            tracing::warn!("the disk of the audit file does not answer");
            set_failing(true);
            hand_over.begin();
        });
        let Ok((mut audit, caught_up)) = written.await else {
            tracing::error!("the writer of the audit file ended by a bug: restart the node");
            set_failing(true);
            hand_over.begin();
            return std::future::pending().await;
        };
        match &caught_up {
            Ok(is_all) => audit.has_gap &= !is_all,
            Err(error) => {
                tracing::warn!(%error, "the audit file cannot be written");
                audit.metrics.audit.failures.add(1);
            }
        }
        set_failing(caught_up.is_err() || audit.has_gap);
        (audit, caught_up)
    }

    /// What waits, and what is in the ring; false if there is more.
    fn write(&mut self) -> io::Result<bool> {
        for _ in 0..WRITES_PER_ROUND {
            let all = self.take_events();
            let written = self.file.write()?;
            self.metrics.audit.bytes.add(written.bytes);
            self.metrics.audit.rotations.add(written.rotations);
            if all {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes so many events as are written in one go; true if there are no more.
    fn take_events(&mut self) -> bool {
        let oldest = self.begin_file();
        while self.file.lines().len() < WRITE_BYTES {
            let position = self.position.unwrap_or(oldest);
            let Ok(events) = self.events.after(position, EVENTS_PER_LOOK) else {
                self.skipped_after.get_or_insert(position);
                self.position = Some(self.events.oldest());
                continue;
            };
            // A login is noted before what the session then does. So notes are taken after events, and written before.
            self.write_notes();
            events.iter().for_each(|recorded| self.take(recorded));
            let behind = self.events.newest().index.saturating_sub(self.position().index);
            self.metrics.audit.behind.set(behind);
            if events.len() < EVENTS_PER_LOOK {
                return true;
            }
        }
        false
    }

    fn write_notes(&mut self) {
        let (notes, lost) = self.notes.take(self.is_last_round);
        let position = self.position();
        for (unix_ms, note) in notes {
            match &note {
                Note::LoggedIn { public, is_new: true, .. } if !self.lines.is_open(*public) => {
                    self.lines.await_session(*public, (unix_ms, note));
                }
                _ => self.write_note(&note, position, unix_ms),
            }
        }
        if lost > 0 {
            self.metrics.audit.lost.add(1);
            self.file.lines().extend_from_slice(&line::lost_notes(lost, position, unix_ms()));
        }
    }

    fn write_note(&mut self, note: &Note, position: Position, unix_ms: u64) {
        if let Note::LoggedIn { origin, session, public, .. } = note {
            self.lines.logged_in(*session, *public, Arc::clone(origin));
            if !origin.is_known() {
                return;
            }
        }
        self.file.lines().extend_from_slice(&line::note(note, position, unix_ms));
        self.metrics.audit.lines.add(1);
    }

    /// A file that begins later than the log says so. Returns after what it begins.
    fn begin_file(&mut self) -> Position {
        let oldest = self.events.oldest();
        if self.position.is_none() && oldest.index > 0 {
            self.file.lines().extend_from_slice(&line::beginning(oldest, unix_ms()));
            self.position = Some(oldest);
        }
        oldest
    }

    fn position(&self) -> Position {
        self.position.unwrap_or_else(|| self.events.oldest())
    }

    fn take(&mut self, recorded: &Recorded) {
        let lost = self.expected.map_or(0, |expected| recorded.serial.saturating_sub(expected));
        if let Some(after) = self.skipped_after.take() {
            self.has_gap = true;
            self.metrics.audit.lost.add(1);
            tracing::warn!(lost, "events are missing in the audit file");
            let gap = line::gap(after.index, recorded.position, recorded.unix_ms, lost);
            self.file.lines().extend_from_slice(&gap);
            for (unix_ms, login) in self.lines.logins_of_open() {
                self.write_note(&login, self.position(), unix_ms);
            }
        }
        if let Event::SessionOpened { public, .. } = &recorded.event
            && let Some((unix_ms, login)) = self.lines.login_of(*public)
        {
            self.write_note(&login, self.position(), unix_ms);
        }
        self.expected = Some(recorded.serial + u64::from(recorded.event.is_publishable()));
        self.position = Some(recorded.position);
        if self.lines.write_audited(self.file.lines(), recorded) {
            self.metrics.audit.lines.add(1);
        }
    }
}

/// Says each time that it takes too long.
async fn until_written<T>(
    mut writing: JoinHandle<T>,
    patience: Duration,
    mut takes_too_long: impl FnMut(),
) -> Result<T, JoinError> {
    loop {
        match timeout(patience, &mut writing).await {
            Ok(written) => return written,
            Err(_) => takes_too_long(),
        }
    }
}

impl HandOver {
    fn begin(&mut self) {
        let is_leader = self.shard.leadership(GroupId::FIRST).is_here;
        let is_due = self.done_at.is_none_or(|at| at.elapsed() >= HAND_OVER_EVERY);
        if !(is_leader && is_due && self.gate.is_closed()) {
            return;
        }
        self.done_at = Some(Instant::now());
        // Whether it works, the leadership shows.
        let (reply, _) = oneshot::channel();
        if self.shard.send(Input::HandOver { group: GroupId::FIRST, to: None, reply }).is_ok() {
            tracing::warn!("hands the leadership over: the audit file cannot be written");
        }
    }
}

#[cfg(test)]
mod tests;
