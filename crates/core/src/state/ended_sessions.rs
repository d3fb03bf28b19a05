//! Sessions that have ended, the latest of them, and how.
//!
//! Their answers are gone with them, so a straggling copy of their opening must not bring them back: a
//! straggling acquire would then be granted a second time, to nobody. And a release that comes after its
//! session was closed can be told that everything has been given back.
//!
//! Under the first rules a fixed number of them is remembered. Since rules 2 it is those of a fixed span of time, and
//! at least that number: front ends let no request through that is older than the span.

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
    /// Its owner closed it, and gave back what it held.
    Closed,
    /// It was not heard of any more.
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

    /// Forgets those that ended before the span, but for the latest so many. Of a great number only some at once: each
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
