//! How many status reads of one stream are under way: from when they are asked until their answers are in a frame. An
//! answer can be long, and a frame has to stay below what a message may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Of at most 80 KiB each: ten holders and ten waiters in each tier, with their owners and metadata.
const UNDER_WAY_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct ReadQuota {
    under_way: Arc<AtomicUsize>,
    /// The session has ended, and no more begin.
    is_closed: Arc<AtomicBool>,
}

impl ReadQuota {
    /// False if there are too many, or the session has ended. Only the reader of the stream's frames begins one.
    pub(super) fn begin(&self) -> bool {
        let has_room = !self.is_closed.load(Ordering::Relaxed)
            && self.under_way.load(Ordering::Relaxed) < UNDER_WAY_MAX;
        self.under_way.fetch_add(usize::from(has_room), Ordering::Relaxed);
        has_room
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    pub(super) fn end(&self, count: usize) {
        self.under_way.fetch_sub(count, Ordering::Relaxed);
    }

    pub(super) fn is_none_under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_again_once_some_reads_have_ended() {
        let reads = ReadQuota::default();
        assert_eq!((0..100).filter(|_| reads.begin()).count(), UNDER_WAY_MAX);
        reads.end(3);
        assert_eq!((0..100).filter(|_| reads.begin()).count(), 3);
    }
}
