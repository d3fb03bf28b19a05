//! Sessions that have ended, the latest of them, and how.
//!
//! Their answers are gone with them, so a straggling copy of their opening must not bring them back: a
//! straggling acquire would then be granted a second time, to nobody. And a release that comes after its
//! session was closed can be told that everything has been given back.

use alloc::collections::{BTreeMap, VecDeque};

use crate::id::SessionId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedSessions {
    /// The oldest first.
    order: VecDeque<SessionId>,
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
    /// Forgets the oldest where there are more than `max`.
    pub(crate) fn remember(&mut self, id: SessionId, end: End, max: usize) {
        if self.ends.insert(id, end).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > max {
            if let Some(oldest) = self.order.pop_front() {
                self.ends.remove(&oldest);
            }
        }
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<End> {
        self.ends.get(&id).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, End)> {
        self.order.iter().filter_map(|id| Some((*id, self.get(*id)?)))
    }
}
