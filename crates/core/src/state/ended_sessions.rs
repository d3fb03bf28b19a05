//! The sessions that ended lately, and how they ended.
//!
//! The answers of a session are dropped with it. So a late copy of its opening must not open it again: a late acquire
//! would then be granted a second time, without a client. Also, a release after the session was closed gets the answer
//! that everything is released.
//!
//! Under the first rules a fixed number of sessions is remembered. Since rules 2 it is all sessions of a fixed span of
//! time, and at least that number. Front ends refuse requests that are older than the span.

use alloc::collections::{BTreeMap, VecDeque};

use crate::model::id::SessionId;
use crate::model::time::{LogicalTime, Span};

const FORGOTTEN_AT_ONCE_MAX: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedSessions {
    /// The oldest first, with the time of its end; under the first rules, zero.
    order: VecDeque<(SessionId, LogicalTime)>,
    ends: BTreeMap<SessionId, End>,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its client closed it, and released what it held.
    Closed,
    /// It expired.
    Expired,
}

impl EndedSessions {
    pub(crate) fn remember(&mut self, id: SessionId, end: End, at: LogicalTime) {
        if self.ends.insert(id, end).is_none() {
            self.order.push_back((id, at));
        }
    }

    /// Forgets the oldest where there are more than so many.
    pub(crate) fn forget_beyond(&mut self, max: usize) {
        while self.order.len() > max {
            self.forget_oldest();
        }
    }

    /// Forgets those that ended before the span, except for the latest `kept_min`. It forgets only a few at once: each
    /// end adds one, so all of them are forgotten in time.
    pub(crate) fn forget_older(&mut self, now: LogicalTime, span: Span, kept_min: usize) {
        for _ in 0..FORGOTTEN_AT_ONCE_MAX {
            let is_old = self.order.front().is_some_and(|(_, at)| at.after(span) <= now);
            if !is_old || self.order.len() <= kept_min {
                return;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((oldest, _)) = self.order.pop_front() {
            self.ends.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<End> {
        self.ends.get(&id).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, End, LogicalTime)> {
        self.order.iter().filter_map(|(id, at)| Some((*id, self.get(*id)?, *at)))
    }
}
