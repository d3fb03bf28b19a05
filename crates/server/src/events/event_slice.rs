//! Consecutive events, as a reader gets them: shared batches of the ring, and the range of each.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::{Batch, Recorded};

/// The oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventSlice {
    parts: Vec<(Batch, Range<usize>)>,
    length: usize,
}

/// An event in its batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRef<'a> {
    batch: &'a Batch,
    event: &'a Recorded,
    place: usize,
}

/// An event that stays even if the ring drops it. It keeps its whole batch in memory.
#[derive(Clone, Debug)]
pub(crate) struct SharedEvent {
    batch: Batch,
    place: usize,
}

impl EventSlice {
    /// At most so many, from this place in the first batch on.
    pub(super) fn of<'a>(
        batches: impl Iterator<Item = &'a Batch>,
        mut start: usize,
        max: usize,
    ) -> EventSlice {
        let mut slice = EventSlice::default();
        for batch in batches {
            let end = batch.len().min(start.saturating_add(max - slice.length));
            if end > start {
                slice.length += end - start;
                slice.parts.push((Arc::clone(batch), start..end));
            }
            if slice.length == max {
                break;
            }
            start = 0;
        }
        slice
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Recorded> {
        let parts = self.parts.iter();
        parts.flat_map(|(batch, range)| batch.get(range.clone()).unwrap_or_default())
    }

    pub(crate) fn seen(&self) -> impl Iterator<Item = EventRef<'_>> {
        self.parts.iter().flat_map(|(batch, range)| {
            let events = batch.get(range.clone()).unwrap_or_default();
            let places = range.clone();
            places.zip(events).map(move |(place, event)| EventRef { batch, event, place })
        })
    }

    pub(crate) fn first(&self) -> Option<&Recorded> {
        self.parts.first().and_then(|(batch, range)| batch.get(range.start))
    }

    pub(crate) fn last(&self) -> Option<&Recorded> {
        self.parts.last().and_then(|(batch, range)| batch.get(range.end.checked_sub(1)?))
    }
}

impl EventRef<'_> {
    pub(crate) fn keep(self) -> SharedEvent {
        SharedEvent { batch: Arc::clone(self.batch), place: self.place }
    }
}

impl Deref for EventRef<'_> {
    type Target = Recorded;

    fn deref(&self) -> &Recorded {
        self.event
    }
}

impl Deref for SharedEvent {
    type Target = Recorded;

    fn deref(&self) -> &Recorded {
        // It was there when it was seen, and batches do not change.
        &self.batch[self.place]
    }
}
