//! All that ends on its own, by the time at which it does.
//!
//! The index is exact: it holds each deadline once, and moves with it. So the next tick is known, and
//! a tick touches nothing that is not due.

use alloc::collections::BTreeSet;

use crate::id::{FenceToken, RequestId, SessionId};
use crate::time::LogicalTime;

/// Whose deadline it is. The order is the one in which deadlines of one moment are worked off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    Session(SessionId),
    /// A hold, by the acquire that it answers, and its token: an acquire-all has several.
    Hold(SessionId, RequestId, FenceToken),
    /// A wait, by its acquire.
    Wait(SessionId, RequestId),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deadlines {
    set: BTreeSet<(LogicalTime, Due)>,
}

impl Deadlines {
    pub(crate) fn insert(&mut self, at: LogicalTime, due: Due) {
        self.set.insert((at, due));
    }

    pub(crate) fn remove(&mut self, at: LogicalTime, due: Due) {
        let was_there = self.set.remove(&(at, due));
        debug_assert!(was_there, "no deadline of {due:?} at {at}");
    }

    pub(crate) fn replace(&mut self, from: LogicalTime, to: LogicalTime, due: Due) {
        if from != to {
            self.remove(from, due);
            self.insert(to, due);
        }
    }

    pub(crate) fn first(&self) -> Option<LogicalTime> {
        self.set.first().map(|(at, _)| *at)
    }

    /// The first of those that are due.
    pub(crate) fn first_due(&self, now: LogicalTime) -> Option<Due> {
        self.set.first().filter(|(at, _)| *at <= now).map(|(_, due)| *due)
    }

    /// What a session has left behind by a planted bug must not be due for ever.
    #[cfg(feature = "planted")]
    pub(crate) fn forget_first_due_of_the_dead(
        &mut self,
        now: LogicalTime,
        lives: impl Fn(SessionId) -> bool,
    ) {
        while let Some((at, due)) = self.set.first().filter(|(at, _)| *at <= now).copied() {
            match due {
                Due::Hold(id, ..) | Due::Wait(id, _) if !lives(id) => self.remove(at, due),
                _ => return,
            }
        }
    }

    /// Those before `end`, in order.
    pub(crate) fn before(&self, end: LogicalTime) -> impl Iterator<Item = Due> {
        self.set.iter().take_while(move |(at, _)| *at < end).map(|(_, due)| *due)
    }
}
