//! How far the table's events are published to an external system, so that a new leader continues where the one before
//! it stopped.
//!
//! Events are counted from the first [`Command::EventsPublished`](crate::Command::EventsPublished) on. A table without
//! such a command counts nothing, and its encoding is unchanged. The count is the same on every replica, so a publisher
//! that has lost some events knows exactly how many.

use crate::model::codec::{DecodeError, Reader, Sink};
use crate::model::id::LogIndex;

/// How many events there were, and how many of them are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// [Publishable](crate::Event::is_publishable) events since counting began.
    pub events: u64,
    /// How many of them, from the first on, are published.
    pub through: u64,
    /// The log entry of the last published event; before the first, the entry at which counting began.
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
