//! The audit file: every event, as a line of JSON.
//!
//! It reads the rings of events like any watcher, so no request waits for its disk. If it falls so far behind that a
//! ring has forgotten what it did not write yet, it says so in a line of its own, with how many are missing. While much
//! happens it looks every [`LOOK_EVERY`], and then writes all there is. After a restart it continues after the last
//! line of each group (`last_positions.rs`), so that events which the replayed log records again are not written twice.
//!
//! The events of a group are in order. Between the groups there is no order: the writer takes some of each in turn.
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

mod audited_group;
mod file;
mod json_writer;
mod last_positions;
pub(crate) mod line;
mod lines;
mod notes;
mod short_names;

use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use holdfast_replica::{GroupId, Leadership};
use holdfast_service::AuditGate;
use tokio::sync::watch::error::RecvError;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

use self::audited_group::AuditedGroup;
pub(crate) use self::file::AuditFile;
pub use self::file::AuditFileError;
pub(crate) use self::lines::Lines;
pub(crate) use self::notes::AuditNotes;
use self::notes::DENIALS_EVERY;
use crate::events::{EventRings, Pace};
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
    /// In the order of their numbers; the root group is the first.
    groups: Vec<AuditedGroup>,
    /// The group of which events are taken next.
    next: usize,
    shard: ShardHandle,
    electorate: watch::Receiver<Electorate>,
    /// The file has everything of the root group up to this index. When the log is applied again, the voters up to here
    /// are not written again.
    found_through: Option<u64>,
    metrics: Arc<Metrics>,
    file: AuditFile,
    notes: Arc<AuditNotes>,
    gate: Arc<AuditGate>,
    is_last_round: bool,
}

/// Gives all leaderships up if this node refuses requests because of its file.
#[derive(Debug)]
struct HandOver {
    groups: Vec<GroupId>,
    shard: ShardHandle,
    gate: Arc<AuditGate>,
    done_at: Option<Instant>,
}

impl Audit {
    /// Opens the file, or fails: who wants an audit should not run without one unawares.
    pub(crate) fn open(
        settings: &AuditSettings,
        events: &EventRings,
        shard: ShardHandle,
        mut electorate: watch::Receiver<Electorate>,
        metrics: Arc<Metrics>,
        notes: Arc<AuditNotes>,
        gate: Arc<AuditGate>,
    ) -> Result<Audit, AuditFileError> {
        let (file, positions) = AuditFile::open(settings, events.all().len() as u32)?;
        let groups = events.all().map(|ring| {
            let position = positions.get(&ring.group()).copied();
            AuditedGroup::new(Arc::clone(ring), position, Arc::clone(&metrics))
        });
        let groups = groups.collect();
        electorate.mark_changed();
        Ok(Audit {
            groups,
            next: 0,
            shard,
            electorate,
            found_through: positions.get(&GroupId::FIRST).map(|position| position.index),
            metrics,
            file,
            notes,
            gate,
            is_last_round: false,
        })
    }

    /// Writes until the node stops, and then what is left. To be called once the rings have their beginning.
    pub(crate) async fn keep_writing(mut self, stopping: Stopping) {
        let mut news: Vec<_> = self.groups.iter().map(AuditedGroup::news).collect();
        let groups: Vec<GroupId> = self.groups.iter().map(AuditedGroup::id).collect();
        let leadership = |group| self.shard.watch_leadership(group);
        let mut leaderships: Vec<_> = groups.iter().copied().map(leadership).collect();
        leaderships.iter_mut().for_each(watch::Receiver::mark_changed);
        let mut pace = Pace::new(LOOK_EVERY);
        let (shard, gate) = (self.shard.clone(), Arc::clone(&self.gate));
        let mut hand_over = HandOver { groups, shard, gate, done_at: None };
        loop {
            let is_last_round = stopping.has_begun();
            self.is_last_round = is_last_round;
            let is_waiting = self.file.is_waiting();
            for group in &mut self.groups {
                group.begin(self.file.lines());
            }
            if !is_waiting {
                self.write_leaderships(&mut leaderships);
                self.write_electorate();
            }
            news.iter_mut().for_each(watch::Receiver::mark_unchanged);
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
                let changed = any_changed(&mut news).await;
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
                Ok(place) = any_changed(&mut leaderships) => leaderships[place].mark_changed(),
                Ok(()) = electorate.changed() => {}
                () = stopping.begun() => {}
            }
        }
    }

    /// Who leads the groups, as far as that is news.
    fn write_leaderships(&mut self, leaderships: &mut [watch::Receiver<Leadership>]) {
        for (group, leadership) in self.groups.iter_mut().zip(leaderships) {
            if leadership.has_changed().unwrap_or(false) {
                let now = *leadership.borrow_and_update();
                group.write_leadership(self.file.lines(), now);
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
            let line = line::membership(&now.configuration, self.groups[0].position(), unix_ms());
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
            Ok(true) => audit.groups.iter_mut().for_each(AuditedGroup::caught_up),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "the audit file cannot be written");
                audit.metrics.audit.failures.add(1);
            }
        }
        set_failing(caught_up.is_err() || audit.groups.iter().any(AuditedGroup::has_gap));
        (audit, caught_up)
    }

    /// What waits, and what is in the ring; false if there is more.
    fn write(&mut self) -> io::Result<bool> {
        for _ in 0..WRITES_PER_ROUND {
            let all = self.take_events();
            let positions = || self.groups.iter().filter_map(AuditedGroup::written);
            self.file.put_positions(|| positions().map(|at| (at.group, at)).collect());
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
        // In a row. Each group has its turn, so none falls behind because of another one.
        let mut caught_up = 0;
        while caught_up < self.groups.len() && self.file.lines().len() < WRITE_BYTES {
            let place = self.next % self.groups.len();
            self.next = place + 1;
            let events = self.groups[place].next_events(self.file.lines(), EVENTS_PER_LOOK);
            // A login is noted before what the session then does. So notes are taken after events, and written before.
            self.write_notes();
            let group = &mut self.groups[place];
            events.iter().for_each(|recorded| group.take(self.file.lines(), recorded));
            caught_up = if events.len() < EVENTS_PER_LOOK { caught_up + 1 } else { 0 };
        }
        self.metrics.audit.behind.set(self.groups.iter().map(AuditedGroup::behind).sum());
        caught_up == self.groups.len()
    }

    fn write_notes(&mut self) {
        let (notes, lost) = self.notes.take(self.is_last_round);
        for (unix_ms, note) in notes {
            let place = self.groups.iter().position(|group| group.id() == note.group());
            let group = &mut self.groups[place.unwrap_or(0)];
            group.take_note(self.file.lines(), (unix_ms, note));
        }
        if lost > 0 {
            self.metrics.audit.lost.add(1);
            let line = line::lost_notes(lost, self.groups[0].position(), unix_ms());
            self.file.lines().extend_from_slice(&line);
        }
    }
}

/// Waits until there is something that was not seen in one of them, and says in which.
async fn any_changed<T>(receivers: &mut [watch::Receiver<T>]) -> Result<usize, RecvError> {
    let mut changes: Vec<_> =
        receivers.iter_mut().map(|receiver| Box::pin(receiver.changed())).collect();
    poll_fn(|cx| {
        for (place, change) in changes.iter_mut().enumerate() {
            if let Poll::Ready(changed) = change.as_mut().poll(cx) {
                return Poll::Ready(changed.map(|()| place));
            }
        }
        Poll::Pending
    })
    .await
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
        let is_led = |group: &GroupId| self.shard.leadership(*group).is_here;
        let led: Vec<GroupId> = self.groups.iter().copied().filter(is_led).collect();
        let is_due = self.done_at.is_none_or(|at| at.elapsed() >= HAND_OVER_EVERY);
        if led.is_empty() || !(is_due && self.gate.is_closed()) {
            return;
        }
        self.done_at = Some(Instant::now());
        for group in led {
            // Whether it works, the leadership shows.
            let (reply, _) = oneshot::channel();
            if self.shard.send(Input::HandOver { group, to: None, reply }).is_ok() {
                tracing::warn!(%group, "hands the leadership over: the audit file cannot be written");
            }
        }
    }
}

#[cfg(test)]
mod tests;
