//! What the audit knows of one group: how far the group's events are in the file, and of whom its lines tell.

use std::sync::Arc;

use holdfast_core::Event;
use holdfast_replica::{GroupId, Leadership};
use tokio::sync::watch;

use super::line;
use super::lines::Lines;
use super::notes::{Note, Stamped};
use crate::events::{EventRing, EventSlice, Position, Recorded};
use crate::metrics::Metrics;
use crate::shard::unix_ms;

#[derive(Debug)]
pub(super) struct AuditedGroup {
    events: Arc<EventRing>,
    metrics: Arc<Metrics>,
    /// What was written last; none in a new file.
    position: Option<Position>,
    /// The number of the next event, by the ring's own count; none before the first.
    expected: Option<u64>,
    /// Events after this position are no longer in the ring: it forgot them, or a snapshot stands for them. That has no
    /// line yet.
    skipped_after: Option<Position>,
    lines: Lines,
    /// Events are missing in the file, and the writer has not caught up with the ring since.
    has_gap: bool,
}

impl AuditedGroup {
    /// `position`: up to where the file has the events already.
    pub(super) fn new(
        events: Arc<EventRing>,
        position: Option<Position>,
        metrics: Arc<Metrics>,
    ) -> AuditedGroup {
        let lines = Lines::new(&events);
        let (expected, skipped_after) = (None, None);
        let has_gap = false;
        AuditedGroup { events, metrics, position, expected, skipped_after, lines, has_gap }
    }

    pub(super) fn id(&self) -> GroupId {
        self.events.group()
    }

    /// Changes whenever there is more to read.
    pub(super) fn news(&self) -> watch::Receiver<Position> {
        self.events.news()
    }

    /// Of what is written next. Before a gap that has no line yet: after a restart nothing else would tell of the gap.
    pub(super) fn position(&self) -> Position {
        self.written().unwrap_or_else(|| self.events.oldest())
    }

    /// Up to where the file and what waits have the events, or tell that they are missing.
    pub(super) fn written(&self) -> Option<Position> {
        self.skipped_after.or(self.position)
    }

    pub(super) fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// The file has all that is in the ring.
    pub(super) fn caught_up(&mut self) {
        self.has_gap = false;
    }

    /// How many entries of the log are yet to be looked at.
    pub(super) fn behind(&self) -> u64 {
        let position = self.position.unwrap_or_else(|| self.events.oldest());
        self.events.newest().index.saturating_sub(position.index)
    }

    /// A file that begins later than the group's log says so. Returns after what it begins.
    pub(super) fn begin(&mut self, out: &mut Vec<u8>) -> Position {
        let oldest = self.events.oldest();
        if self.position.is_none() && oldest.index > 0 {
            if !self.events.is_whole() {
                out.extend_from_slice(&line::beginning(oldest, unix_ms()));
            }
            self.position = Some(oldest);
        }
        oldest
    }

    /// At most so many of those that are not written yet.
    pub(super) fn next_events(&mut self, out: &mut Vec<u8>, max: usize) -> EventSlice {
        let oldest = self.begin(out);
        loop {
            let position = self.position.unwrap_or(oldest);
            if let Ok(events) = self.events.after(position, max) {
                return events;
            }
            self.skipped_after.get_or_insert(position);
            self.position = Some(self.events.oldest());
        }
    }

    pub(super) fn take(&mut self, out: &mut Vec<u8>, recorded: &Recorded) {
        let lost = self.expected.map_or(0, |expected| recorded.serial.saturating_sub(expected));
        if let Some(after) = self.skipped_after.take() {
            self.has_gap = true;
            self.metrics.audit.lost.add(1);
            tracing::warn!(group = %self.id(), lost, "events are missing in the audit file");
            let gap = line::gap(after.index, recorded.position, recorded.unix_ms, lost);
            out.extend_from_slice(&gap);
            for (unix_ms, login) in self.lines.logins_of_open() {
                self.write_note(out, &login, unix_ms);
            }
        }
        if let Event::SessionOpened { public, .. } = &recorded.event
            && let Some((unix_ms, login)) = self.lines.login_of(*public)
        {
            self.write_note(out, &login, unix_ms);
        }
        self.expected = Some(recorded.serial + u64::from(recorded.event.is_publishable()));
        self.position = Some(recorded.position);
        if self.lines.write_audited(out, recorded) {
            self.metrics.audit.lines.add(1);
        }
    }

    /// At once, or when the session to which it belongs is open.
    pub(super) fn take_note(&mut self, out: &mut Vec<u8>, (unix_ms, note): Stamped) {
        match &note {
            Note::LoggedIn { public, is_new: true, .. } if !self.lines.is_open(*public) => {
                self.lines.await_session(*public, (unix_ms, note));
            }
            _ => self.write_note(out, &note, unix_ms),
        }
    }

    pub(super) fn write_leadership(&mut self, out: &mut Vec<u8>, now: Leadership) {
        if !now.is_here {
            // Their clients come to another node now, perhaps with other credentials.
            self.lines.forget_origins();
        }
        out.extend_from_slice(&line::leadership(now, self.position(), unix_ms()));
    }

    fn write_note(&mut self, out: &mut Vec<u8>, note: &Note, unix_ms: u64) {
        if let Note::LoggedIn { origin, session, public, .. } = note {
            self.lines.logged_in(*session, *public, Arc::clone(origin));
            if !origin.is_known() {
                return;
            }
        }
        out.extend_from_slice(&line::note(note, self.position(), unix_ms));
        self.metrics.audit.lines.add(1);
    }
}
