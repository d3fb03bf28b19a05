//! Promotions that are left for later: a log entry may take so many steps through queues, and the entries after it go
//! on where it stopped.
//!
//! A waiter of an acquire-all that could be granted here and not elsewhere is passed by, and the walk goes on behind
//! it. One client can put a hundred thousand of them into a queue, and each release would look at all of them. So the
//! walk has a budget. What is left waits in line, first come, first served: each promotion that comes meanwhile goes
//! behind it, so that no client can push another one's aside. Waiters of one lock alone cost no steps, because each of
//! them leaves its queue when it is looked at. What waits here is part of the state.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};

use crate::model::name::LockName;
use crate::state::queue::Ticket;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deferred {
    order: VecDeque<Promotion>,
    /// Those of them that have not begun: the same promotion need not be in line twice.
    whole: BTreeSet<Promotion>,
    prefix_count: usize,
}

/// Where to go on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promotion {
    /// Of the waiters of a lock, those behind this place; without one, all.
    Queue { name: LockName, passed: Option<Ticket> },
    /// Of the locks under a prefix that was thawed, those behind this one; without one, all.
    Prefix { prefix: Box<str>, passed: Option<LockName> },
}

impl Promotion {
    fn has_begun(&self) -> bool {
        match self {
            Promotion::Queue { passed, .. } => passed.is_some(),
            Promotion::Prefix { passed, .. } => passed.is_some(),
        }
    }

    fn is_prefix(&self) -> bool {
        matches!(self, Promotion::Prefix { .. })
    }
}

impl Deferred {
    /// Behind all others. Returns whether it is new: one that has not begun is in line once.
    pub(crate) fn push(&mut self, promotion: Promotion) -> bool {
        if !promotion.has_begun() && !self.whole.insert(promotion.clone()) {
            return false;
        }
        self.prefix_count += usize::from(promotion.is_prefix());
        self.order.push_back(promotion);
        true
    }

    /// One that was taken out and is not finished.
    pub(crate) fn put_back(&mut self, promotion: Promotion) {
        if !promotion.has_begun() && !self.whole.insert(promotion.clone()) {
            return;
        }
        self.prefix_count += usize::from(promotion.is_prefix());
        self.order.push_front(promotion);
    }

    pub(crate) fn pop(&mut self) -> Option<Promotion> {
        let first = self.order.pop_front()?;
        self.whole.remove(&first);
        self.prefix_count -= usize::from(first.is_prefix());
        Some(first)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// How many of them are thawed prefixes.
    pub(crate) fn prefix_count(&self) -> usize {
        self.prefix_count
    }

    /// Is there something of this lock that may have to be granted yet?
    pub(crate) fn covers(&self, name: &LockName) -> bool {
        self.order.iter().any(|promotion| match promotion {
            Promotion::Queue { name: deferred, .. } => deferred == name,
            Promotion::Prefix { prefix, .. } => name.starts_with(&**prefix),
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Promotion> {
        self.order.iter()
    }
}
