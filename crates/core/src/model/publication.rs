//! How far the table's events have been passed on to a store outside, so that a new leader goes on where the
//! one before it stopped.
//!
//! Events are counted from the first [`Command::EventsPublished`](crate::Command::EventsPublished) on; a table
//! that never saw one counts nothing, and is written as it always was. The count is the same on every replica,
//! so a publisher that has lost some of them knows exactly how many.

use crate::model::codec::{DecodeError, Reader, Sink};
use crate::model::id::LogIndex;

/// What has been published, of what there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Events that [are news](crate::Event::is_publishable), since counting began.
    pub events: u64,
    /// So many of them, from the first on, are published.
    pub through: u64,
    /// The log entry of the last that is published; before the first, the one at which counting began.
    pub index: LogIndex,
    /// Elections up to this term are published.
    pub term: u64,
}

impl Publication {
    pub(crate) fn write(self, sink: &mut impl Sink) {
        sink.varint(self.events);
        sink.varint(self.through);
        sink.varint(self.index.0);
        sink.varint(self.term);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Publication, DecodeError> {
        Ok(Publication {
            events: reader.varint()?,
            through: reader.varint()?,
            index: LogIndex(reader.varint()?),
            term: reader.varint()?,
        })
    }
}
