//! Sessions that have ended, the latest of them. Their answers are gone with them, so a straggling copy
//! of their opening must not bring them back: a straggling acquire would then be granted a second time,
//! to nobody.

use alloc::collections::{BTreeSet, VecDeque};

use crate::id::SessionId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedSessions {
    /// The oldest first.
    order: VecDeque<SessionId>,
    ids: BTreeSet<SessionId>,
}

impl EndedSessions {
    /// Forgets the oldest where there are more than `max`.
    pub(crate) fn remember(&mut self, id: SessionId, max: usize) {
        if self.ids.insert(id) {
            self.order.push_back(id);
        }
        while self.order.len() > max {
            if let Some(oldest) = self.order.pop_front() {
                self.ids.remove(&oldest);
            }
        }
    }

    pub(crate) fn contains(&self, id: SessionId) -> bool {
        self.ids.contains(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SessionId> {
        self.order.iter().copied()
    }
}
