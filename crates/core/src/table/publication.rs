//! How far the table's events have been passed on to a store outside, so that a new leader goes on where the
//! one before it stopped.
//!
//! Events are counted from the first [`Command::EventsPublished`](crate::Command::EventsPublished) on; a table
//! that never saw one counts nothing, and is written as it always was. The count is the same on every replica,
//! so whoever has lost some of them knows exactly how many.

use super::LockTable;
use crate::codec::{DecodeError, Reader, Sink};
use crate::event::Event;
use crate::id::LogIndex;
use crate::outcome::Outcome;

/// What has been published, of what there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Events that [are news](Event::is_news), since counting began.
    pub events: u64,
    /// So many of them, from the first on, are published.
    pub through: u64,
    /// The log entry of the last that is published; before the first, the one at which counting began.
    pub index: LogIndex,
    /// Elections up to this term are published.
    pub term: u64,
}

impl LockTable {
    /// None if nobody ever published anything.
    pub fn publication(&self) -> Option<Publication> {
        self.publication
    }

    /// Only ever forward: a leader of the past may be slow to say what it did.
    pub(crate) fn events_published(&mut self, through: u64, index: LogIndex, term: u64) -> Outcome {
        let begun = Publication { events: 0, through: 0, index: self.applied_index, term: 0 };
        let publication = self.publication.get_or_insert(begun);
        let through = through.min(publication.events);
        if through > publication.through {
            publication.through = through;
            publication.index = publication.index.max(index).min(self.applied_index);
        }
        publication.term = publication.term.max(term);
        Outcome::Published(*publication)
    }

    pub(super) fn count_events(&mut self, events: &[Event]) {
        if let Some(publication) = &mut self.publication {
            let news = events.iter().filter(|event| event.is_news()).count();
            publication.events = publication.events.saturating_add(news as u64);
        }
    }
}

impl Publication {
    pub(super) fn write(self, sink: &mut impl Sink) {
        sink.varint(self.events);
        sink.varint(self.through);
        sink.varint(self.index.0);
        sink.varint(self.term);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Publication, DecodeError> {
        Ok(Publication {
            events: reader.varint()?,
            through: reader.varint()?,
            index: LogIndex(reader.varint()?),
            term: reader.varint()?,
        })
    }
}
