//! A lock: its holders, its queue, and whether a lock delay closes it.
//!
//! A lock without holders and waiters is not in the table, unless a lock delay closes it. A lock can be free
//! and have waiters: it is reserved for an acquire-all that also waits for another one, or an operator has frozen it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use crate::model::command::{HoldRef, Mode};
use crate::model::id::{FenceToken, RequestId, SessionId};
use crate::model::outcome::Rejection;
use crate::model::time::LogicalTime;
use crate::state::hold::{Actor, Hold, HoldKey};
use crate::state::queue::WaitQueue;

#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    holders: Holders,
    /// What few locks have.
    queue_state: Option<Box<QueueState>>,
}

/// The holds. Usually there is one, which needs no allocation.
#[derive(Clone, Debug, Default)]
enum Holders {
    #[default]
    Free,
    One(Hold),
    /// At least two.
    Many(Box<ManyHolds>),
}

/// The holds by their keys. If there are many, also by the other fields by which a session refers to them.
#[derive(Clone, Debug, Default)]
struct ManyHolds {
    by_key: BTreeMap<HoldKey, Hold>,
    /// Valid because neither the actor nor the token of a hold changes while there are others.
    index: Option<HoldIndex>,
}

/// One session can have hundreds of thousands of the holds.
#[derive(Clone, Debug, Default)]
struct HoldIndex {
    actors: BTreeSet<(Actor, RequestId)>,
    tokens: BTreeSet<(SessionId, FenceToken, RequestId)>,
}

/// Fewer holds are searched one by one.
const INDEXED_MIN: usize = 64;

impl ManyHolds {
    fn insert(&mut self, hold: Hold) {
        if let Some(index) = &mut self.index {
            index.insert(&hold);
        }
        self.by_key.insert(hold.key(), hold);
        if self.index.is_none() && self.by_key.len() > INDEXED_MIN {
            let mut index = HoldIndex::default();
            self.by_key.values().for_each(|hold| index.insert(hold));
            self.index = Some(index);
        }
    }

    fn remove(&mut self, key: HoldKey) -> Option<Hold> {
        let hold = self.by_key.remove(&key)?;
        if self.by_key.len() <= INDEXED_MIN / 2 {
            self.index = None;
        }
        if let Some(index) = &mut self.index {
            index.actors.remove(&(hold.actor(), hold.request));
            index.tokens.remove(&(hold.session, hold.token, hold.request));
        }
        Some(hold)
    }
}

impl HoldIndex {
    fn insert(&mut self, hold: &Hold) {
        self.actors.insert((hold.actor(), hold.request));
        self.tokens.insert((hold.session, hold.token, hold.request));
    }

    /// The acquires of an actor's holds.
    fn by_actor(&self, actor: Actor) -> impl Iterator<Item = RequestId> {
        let all = (actor, RequestId(0))..=(actor, RequestId(u64::MAX));
        self.actors.range(all).map(|(_, request)| *request)
    }

    /// The acquires of a session's holds under this token.
    fn by_token(&self, session: SessionId, token: FenceToken) -> impl Iterator<Item = RequestId> {
        let all = (session, token, RequestId(0))..=(session, token, RequestId(u64::MAX));
        self.tokens.range(all).map(|(_, _, request)| *request)
    }
}

/// The waiters, and the lock delay.
#[derive(Clone, Debug, Default)]
struct QueueState {
    queue: WaitQueue,
    /// The end of a lock delay: nothing is granted before.
    closed_until: Option<LogicalTime>,
}

static EMPTY_QUEUE: WaitQueue = WaitQueue::EMPTY;

impl Lock {
    pub(crate) fn add_hold(&mut self, hold: Hold) {
        self.holders = match core::mem::take(&mut self.holders) {
            Holders::Free => Holders::One(hold),
            Holders::One(first) => {
                let mut both = ManyHolds::default();
                both.insert(first);
                both.insert(hold);
                Holders::Many(Box::new(both))
            }
            Holders::Many(mut many) => {
                many.insert(hold);
                Holders::Many(many)
            }
        };
    }

    pub(crate) fn remove_hold(&mut self, key: HoldKey) -> Option<Hold> {
        match &mut self.holders {
            Holders::One(hold) if hold.key() == key => match core::mem::take(&mut self.holders) {
                Holders::One(hold) => Some(hold),
                _ => None,
            },
            Holders::Many(many) => {
                let removed = many.remove(key);
                if many.by_key.len() == 1
                    && let Some((_, last)) = many.by_key.pop_first()
                {
                    self.holders = Holders::One(last);
                }
                removed
            }
            _ => None,
        }
    }

    pub(crate) fn queue_mut(&mut self) -> &mut WaitQueue {
        &mut self.queue_state.get_or_insert_default().queue
    }

    pub(crate) fn close_until(&mut self, until: Option<LogicalTime>) {
        self.queue_state.get_or_insert_default().closed_until = until;
        self.drop_empty_queue();
    }

    /// Frees the memory of an empty queue.
    pub(crate) fn drop_empty_queue(&mut self) {
        let empty = |state: &QueueState| state.queue.is_empty() && state.closed_until.is_none();
        if self.queue_state.as_deref().is_some_and(empty) {
            self.queue_state = None;
        }
    }

    pub(crate) fn hold_mut(&mut self, key: HoldKey) -> Option<&mut Hold> {
        match &mut self.holders {
            Holders::One(hold) if hold.key() == key => Some(hold),
            Holders::Many(many) => many.by_key.get_mut(&key),
            _ => None,
        }
    }

    pub(crate) fn hold(&self, key: HoldKey) -> Option<&Hold> {
        match &self.holders {
            Holders::One(hold) if hold.key() == key => Some(hold),
            Holders::Many(many) => many.by_key.get(&key),
            _ => None,
        }
    }

    /// In the order of their keys.
    pub(crate) fn holds(&self) -> impl Iterator<Item = &Hold> {
        let (one, many) = match &self.holders {
            Holders::Free => (None, None),
            Holders::One(hold) => (Some(hold), None),
            Holders::Many(many) => (None, Some(many.by_key.values())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// The holds of one session.
    pub(crate) fn holds_of(&self, session: SessionId) -> impl Iterator<Item = &Hold> {
        let (one, many) = match &self.holders {
            Holders::One(hold) if hold.session == session => (Some(hold), None),
            Holders::Many(many) => {
                let all = (session, RequestId(0))..=(session, RequestId(u64::MAX));
                (None, Some(many.by_key.range(all).map(|(_, hold)| hold)))
            }
            _ => (None, None),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// The hold to which a session refers. An ambiguous reference is refused: several shared holds have one token, and
    /// any of them could belong to another task.
    pub(crate) fn find_meant(
        &self,
        session: SessionId,
        meant: &HoldRef,
    ) -> Result<&Hold, Rejection> {
        if meant.acquire != RequestId(0) {
            let hold = self.hold((session, meant.acquire));
            return hold.filter(|hold| hold.token == meant.token).ok_or(Rejection::NotHeld);
        }
        let (first, second) = match self.index() {
            Some(index) => {
                let mut requests = index.by_token(session, meant.token);
                let mut next = || self.hold((session, requests.next()?));
                (next(), next())
            }
            None => {
                let mut holds = self.holds_of(session).filter(|hold| hold.token == meant.token);
                (holds.next(), holds.next())
            }
        };
        match (first, second) {
            (None, _) => Err(Rejection::NotHeld),
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => Err(Rejection::AmbiguousHold),
        }
    }

    /// The first hold of an actor.
    pub(crate) fn hold_of(&self, actor: Actor) -> Option<&Hold> {
        match self.index() {
            Some(index) => self.hold((actor.0, index.by_actor(actor).next()?)),
            None => self.holds_of(actor.0).find(|hold| hold.actor == actor.1),
        }
    }

    fn index(&self) -> Option<&HoldIndex> {
        match &self.holders {
            Holders::Many(many) => many.index.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn holder_count(&self) -> usize {
        match &self.holders {
            Holders::Free => 0,
            Holders::One(_) => 1,
            Holders::Many(many) => many.by_key.len(),
        }
    }

    /// How it is held; all holders have the same mode.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.holds().next().map(|hold| hold.mode)
    }

    /// The token that the present shared holders have in common.
    pub(crate) fn shared_token(&self) -> Option<FenceToken> {
        let first = self.holds().next()?;
        (first.mode == Mode::Shared).then_some(first.token)
    }

    pub(crate) fn queue(&self) -> &WaitQueue {
        self.queue_state.as_ref().map_or(&EMPTY_QUEUE, |state| &state.queue)
    }

    pub(crate) fn closed_until(&self) -> Option<LogicalTime> {
        self.queue_state.as_ref()?.closed_until
    }

    /// The number of permits that the holders and waiters have stated.
    pub(crate) fn stated_permits(&self) -> Option<u32> {
        match self.mode() {
            Some(Mode::Permit { limit }) => Some(limit),
            _ => self.queue().stated_permits(),
        }
    }

    pub(crate) fn waiter_count(&self) -> usize {
        self.queue().len()
    }

    pub(crate) fn is_unused(&self) -> bool {
        matches!(self.holders, Holders::Free) && self.queue_state.is_none()
    }

    /// Whether shared holders remain and none of them converts. Then the release of one of them changes nothing for the
    /// waiters.
    pub(crate) fn readers_only_go_on(&self) -> bool {
        self.holder_count() > 1 && self.mode() == Some(Mode::Shared)
    }

    pub(crate) fn has_queue_state(&self) -> bool {
        self.queue_state.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_small() {
        assert!(size_of::<Lock>() <= 80, "{}", size_of::<Lock>());
    }
}
