//! The deadlines of sessions, holds and waits, in order of time.
//!
//! The index is exact: it has each deadline once, and moves with it. So the time of the next tick is known, and a tick
//! touches only what is due.
//!
//! Deadlines of sessions have a separate index. They move with every heartbeat, and take half the memory without the
//! fields that only holds and waits need.

use alloc::collections::BTreeSet;

use crate::model::id::{FenceToken, RequestId, SessionId};
use crate::model::time::LogicalTime;
use crate::state::dense_map::DenseMap;

/// What a deadline ends. Deadlines of the same time are handled in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    Session(SessionId),
    /// A hold, by its acquire and its token: an acquire-all has several holds.
    Hold(SessionId, RequestId, FenceToken),
    /// A wait, by its acquire.
    Wait(SessionId, RequestId),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines {
    sessions: DenseMap<(LogicalTime, SessionId), ()>,
    /// Of holds and waits.
    others: BTreeSet<(LogicalTime, Due)>,
}

impl PartialEq for Deadlines {
    fn eq(&self, other: &Deadlines) -> bool {
        self.sessions.keys().eq(other.sessions.keys()) && self.others == other.others
    }
}

impl Deadlines {
    pub(crate) fn insert(&mut self, at: LogicalTime, due: Due) {
        match due {
            Due::Session(id) => self.sessions.insert((at, id), ()).is_none(),
            due => self.others.insert((at, due)),
        };
    }

    pub(crate) fn remove(&mut self, at: LogicalTime, due: Due) {
        let was_there = match due {
            Due::Session(id) => self.sessions.remove(&(at, id)).is_some(),
            due => self.others.remove(&(at, due)),
        };
        debug_assert!(was_there, "no deadline of {due:?} at {at}");
    }

    pub(crate) fn replace(&mut self, from: LogicalTime, to: LogicalTime, due: Due) {
        if from != to {
            self.remove(from, due);
            self.insert(to, due);
        }
    }

    pub(crate) fn first(&self) -> Option<LogicalTime> {
        self.in_order().next().map(|(at, _)| at)
    }

    /// The first of those that are due.
    pub(crate) fn first_due(&self, now: LogicalTime) -> Option<Due> {
        self.in_order().next().filter(|(at, _)| *at <= now).map(|(_, due)| due)
    }

    /// Removes what a planted bug has left of a session, so that it is not due for ever.
    #[cfg(feature = "planted")]
    pub(crate) fn forget_first_due_of_the_dead(
        &mut self,
        now: LogicalTime,
        lives: impl Fn(SessionId) -> bool,
    ) {
        loop {
            let first = self.in_order().next().filter(|(at, _)| *at <= now);
            let Some((at, due)) = first else { return };
            match due {
                Due::Hold(id, ..) | Due::Wait(id, _) if !lives(id) => self.remove(at, due),
                _ => return,
            }
        }
    }

    /// Those before `end`, in order.
    pub(crate) fn before(&self, end: LogicalTime) -> impl Iterator<Item = Due> {
        self.in_order().take_while(move |(at, _)| *at < end).map(|(_, due)| due)
    }

    fn in_order(&self) -> impl Iterator<Item = (LogicalTime, Due)> {
        let sessions = self.sessions.keys().map(|(at, id)| (*at, Due::Session(*id)));
        let (mut sessions, mut others) = (sessions.peekable(), self.others.iter().peekable());
        core::iter::from_fn(move || {
            let other_is_first = match (sessions.peek(), others.peek()) {
                (Some(session), Some(other)) => *other < session,
                (session, _) => session.is_none(),
            };
            if other_is_first { others.next().copied() } else { sessions.next() }
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn deadlines_are_ordered_by_time_and_then_by_kind() {
        let id = SessionId(7);
        let wait = Due::Wait(id, RequestId(1));
        let hold = Due::Hold(SessionId(1), RequestId(1), FenceToken(1));
        let (session, next) = (Due::Session(id), Due::Session(SessionId(8)));
        let expected = [(1, wait), (2, session), (2, next), (2, hold), (2, wait), (3, session)]
            .map(|(ms, due)| (LogicalTime::from_ms(ms), due));
        let mut deadlines = Deadlines::default();
        for (at, due) in expected.into_iter().rev() {
            deadlines.insert(at, due);
        }
        let before = |end| deadlines.before(LogicalTime::from_ms(end)).collect::<Vec<Due>>();
        assert_eq!(before(4), expected.map(|(_, due)| due));
        assert_eq!(before(2), [wait]);
        for (at, due) in expected {
            assert_eq!((deadlines.first(), deadlines.first_due(at)), (Some(at), Some(due)));
            assert_eq!(deadlines.first_due(LogicalTime::from_ms(at.as_ms() - 1)), None);
            deadlines.remove(at, due);
        }
        assert_eq!(deadlines.first(), None);
    }
}
