//! The audit file: every event, as a line of JSON.
//!
//! It reads the ring of events like any watcher, so nobody waits for its disk. If it falls so far behind that
//! the ring has forgotten what it did not write yet, it says so in a line of its own, with how many are
//! missing. After a restart it goes on behind the last line that it finds, so that what the log brings back is
//! not written twice.
//!
//! It holds no secret: sessions appear by their public ids, and what holders say of themselves (metadata) is
//! left out.

mod file;
pub(crate) mod line;
mod lines;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

pub(crate) use self::file::AuditFile;
pub use self::file::AuditFileError;
pub use self::line::utc;
pub(crate) use self::lines::Lines;
use crate::driver::{DriverHandle, unix_ms};
use crate::events::{EventRing, Position, Recorded};
use crate::metrics::Metrics;
use crate::stopping::Stopping;

/// Written in one go.
const EVENTS_PER_WRITE: usize = 1_024;
/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);

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
    driver: DriverHandle,
    metrics: Arc<Metrics>,
    file: AuditFile,
    /// What was written last; none in a new file.
    position: Option<Position>,
    /// The number of the next event, by the ring's own count; none before the first.
    expected: Option<u64>,
    /// Something that was applied here was never in the ring: a snapshot stood for it.
    skipped_after: Option<Position>,
    lines: Lines,
}

impl Audit {
    /// Opens the file, or fails: who wants an audit should not run without one unawares.
    pub(crate) fn open(
        settings: &AuditSettings,
        events: Arc<EventRing>,
        driver: DriverHandle,
        metrics: Arc<Metrics>,
    ) -> Result<Audit, AuditFileError> {
        let (file, position) = AuditFile::open(settings)?;
        let (expected, skipped_after, lines) = (None, None, Lines::new(&events));
        Ok(Audit { events, driver, metrics, file, position, expected, skipped_after, lines })
    }

    /// Writes until the node stops, and then what is left. To be called once the ring has its beginning.
    pub(crate) async fn keep_writing(mut self, stopping: Stopping) {
        let mut news = self.events.news();
        let mut leadership = self.driver.watch_leadership();
        leadership.mark_changed();
        loop {
            let is_last_round = stopping.has_begun();
            if !self.file.is_waiting() && leadership.has_changed().unwrap_or(false) {
                let now = *leadership.borrow_and_update();
                let line = line::leadership(now, self.position(), unix_ms());
                self.file.append(&line);
            }
            let more = self.take_events();
            self = match self.write().await {
                Ok(audit) => audit,
                Err(audit) if is_last_round => return drop(audit),
                Err(audit) => {
                    sleep(PAUSE).await;
                    audit
                }
            };
            if more {
                continue;
            }
            if is_last_round {
                return;
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                Ok(()) = leadership.changed() => {}
                () = stopping.begun() => {}
            }
        }
    }

    /// Takes some events; false if there are no more.
    fn take_events(&mut self) -> bool {
        if self.file.is_waiting() {
            return true;
        }
        let position = self.position();
        let Ok(batch) = self.events.after(position, EVENTS_PER_WRITE) else {
            self.skipped_after.get_or_insert(position);
            self.position = Some(self.events.oldest());
            return true;
        };
        for recorded in &batch {
            self.take(recorded);
        }
        let behind = self.events.newest().index.saturating_sub(self.position().index);
        self.metrics.audit.behind.set(behind);
        batch.len() == EVENTS_PER_WRITE
    }

    fn position(&self) -> Position {
        self.position.unwrap_or_else(|| self.events.oldest())
    }

    fn take(&mut self, recorded: &Recorded) {
        let lost = self.expected.map_or(0, |expected| recorded.serial.saturating_sub(expected));
        if let Some(after) = self.skipped_after.take() {
            self.metrics.audit.lost.add(1);
            tracing::warn!(lost, "events are missing in the audit file");
            self.file.append(&line::gap(after.index, recorded.position, recorded.unix_ms, lost));
        }
        self.expected = Some(recorded.serial + u64::from(recorded.event.is_news()));
        self.position = Some(recorded.position);
        if let Some((_, line)) = self.lines.of(recorded) {
            self.file.append(&line);
            self.metrics.audit.lines.add(1);
        }
    }

    /// On a thread that may wait for the disk. After a failure the same lines are tried again.
    async fn write(mut self) -> Result<Audit, Audit> {
        if !self.file.is_waiting() {
            return Ok(self);
        }
        let metrics = Arc::clone(&self.metrics);
        let written = spawn_blocking(move || {
            let result = self.file.write();
            (self, result)
        });
        match written.await {
            Ok((audit, Ok(written))) => {
                metrics.audit.bytes.add(written.bytes);
                metrics.audit.rotations.add(written.rotations);
                Ok(audit)
            }
            Ok((audit, Err(error))) => {
                tracing::warn!(%error, "the audit file cannot be written");
                metrics.audit.failures.add(1);
                Err(audit)
            }
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::{Event, LogIndex, LogicalTime, PublicSessionId, SessionId};
    use holdfast_replica::Leadership;
    use serde_json::Value;
    use tokio::sync::watch;

    use super::*;
    use crate::driver::inbox;

    const KEPT: u64 = 100;

    fn happen(ring: &EventRing, indexes: impl IntoIterator<Item = u64>) {
        let (session, public) = (SessionId(1), PublicSessionId(1));
        let event = Event::SessionOpened { session, public, owner: Box::default() };
        let at = LogicalTime::ZERO;
        let events = indexes.into_iter().map(|index| (LogIndex(index), at, event.clone()));
        ring.record(&mut events.collect(), 0, None);
    }

    fn audit(settings: &AuditSettings, events: &Arc<EventRing>) -> Audit {
        let leadership = watch::Sender::new(Leadership::default());
        let driver = DriverHandle::new(inbox().0, leadership.subscribe());
        Audit::open(settings, Arc::clone(events), driver, Arc::new(Metrics::new())).unwrap()
    }

    fn catch_up(audit: &mut Audit) {
        while audit.take_events() {
            audit.file.write().unwrap();
        }
        audit.file.write().unwrap();
    }

    #[test]
    fn what_the_ring_forgot_is_missing_by_number_and_the_line_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit.jsonl");
        let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
        let events = Arc::new(EventRing::new(KEPT));
        let mut audit = audit(&settings, &events);
        happen(&events, 1..=50);
        catch_up(&mut audit);
        happen(&events, 51..=300);
        catch_up(&mut audit);
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len() as u64, 50 + 1 + KEPT);
        let gap = &lines[50];
        assert_eq!((&gap["event"], &gap["lost"]), (&Value::from("gap"), &Value::from(150)));
        assert_eq!((&gap["after_index"], &gap["index"]), (&Value::from(50), &Value::from(201)));
        assert_eq!(audit.metrics.audit.lost.get(), 1);
        assert_eq!(audit.metrics.audit.lines.get(), 50 + KEPT);
    }

    #[test]
    fn after_a_restart_what_is_in_the_file_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit.jsonl");
        let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
        for through in [5, 8] {
            let events = Arc::new(EventRing::new(KEPT));
            let mut audit = audit(&settings, &events);
            happen(&events, 1..=through);
            catch_up(&mut audit);
        }
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 8, "{text}");
        assert!(!text.contains("gap"), "{text}");
    }
}
