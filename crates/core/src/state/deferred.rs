//! Deferred promotions: a log entry may take a limited number of steps through queues, and the next entries continue.
//!
//! A waiter of an acquire-all that could be granted in this queue, but not in its others, is skipped, and the walk goes
//! on behind it. One client can put a hundred thousand such waiters into a queue, and each release would visit all of
//! them. So the walk has a budget. Unfinished walks wait in a queue. Each entry takes the first walk, and puts it at
//! the end of the queue if it cannot finish it, so that no walk delays the others. Waiters for a single lock cost no
//! steps, because each of them leaves its queue when it is visited. The queue of walks is part of the state.
//!
//! Invariants: a lock or a prefix is in the queue once. So the queue is no longer than the number of locks and of
//! prefixes that are being thawed. A walk continues where it stopped, however often its lock becomes free meanwhile.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::model::name::LockName;
use crate::state::queue::Ticket;

#[derive(Clone, Debug, Default)]
pub(crate) struct Deferred {
    walks: BTreeMap<Target, Walk>,
    /// The targets in the order of their turns, by number.
    queue: BTreeMap<u64, Target>,
}

/// Where a walk continues.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promotion {
    /// Of the waiters of a lock, those behind this place; without one, all.
    Queue { name: LockName, passed: Option<Ticket> },
    /// Of the locks under a prefix that was thawed, those behind this one; without one, all.
    Prefix { prefix: Box<str>, passed: Option<LockName> },
}

/// What a walk visits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Queue(LockName),
    Prefix(Box<str>),
}

#[derive(Clone, Debug)]
struct Walk {
    place: u64,
    rest: Promotion,
    /// The walk has begun, and must be repeated from the beginning: a lock has become free behind it.
    is_to_repeat: bool,
}

impl Promotion {
    fn target(&self) -> Target {
        match self {
            Promotion::Queue { name, .. } => Target::Queue(name.clone()),
            Promotion::Prefix { prefix, .. } => Target::Prefix(prefix.clone()),
        }
    }

    fn has_begun(&self) -> bool {
        match self {
            Promotion::Queue { passed, .. } => passed.is_some(),
            Promotion::Prefix { passed, .. } => passed.is_some(),
        }
    }
}

impl Target {
    fn whole(&self) -> Promotion {
        match self {
            Target::Queue(name) => Promotion::Queue { name: name.clone(), passed: None },
            Target::Prefix(prefix) => Promotion::Prefix { prefix: prefix.clone(), passed: None },
        }
    }
}

impl Deferred {
    /// Adds a walk at the end, unless its target is in the queue already. Returns whether that changes anything.
    pub(crate) fn push(&mut self, promotion: Promotion) -> bool {
        let target = promotion.target();
        let Some(walk) = self.walks.get_mut(&target) else {
            let place = self.queue.last_key_value().map_or(0, |(last, _)| last + 1);
            self.queue.insert(place, target.clone());
            self.walks.insert(target, Walk { place, rest: promotion, is_to_repeat: false });
            return true;
        };
        match (walk.rest.has_begun(), promotion.has_begun()) {
            (false, false) => false,
            (true, false) => !core::mem::replace(&mut walk.is_to_repeat, true),
            (has_begun, true) => {
                let rest = core::mem::replace(&mut walk.rest, promotion);
                if has_begun {
                    // The longer walk includes the other.
                    walk.rest = rest.min(walk.rest.clone());
                } else {
                    walk.is_to_repeat = true;
                }
                true
            }
        }
    }

    /// One of a snapshot, which lists them as [`iter`](Deferred::iter) does. False: it does not.
    pub(crate) fn restore(&mut self, promotion: Promotion) -> bool {
        let target = promotion.target();
        let is_last = self.queue.last_key_value().is_some_and(|(_, last)| *last == target);
        let is_new = !self.walks.contains_key(&target);
        (is_new || (is_last && !promotion.has_begun())) && self.push(promotion)
    }

    pub(crate) fn pop(&mut self) -> Option<Promotion> {
        let (_, target) = self.queue.pop_first()?;
        let walk = self.walks.remove(&target)?;
        if walk.is_to_repeat {
            self.push(target.whole());
        }
        Some(walk.rest)
    }

    /// The lock is no more, so no waiter is left in its queue.
    pub(crate) fn forget(&mut self, name: &LockName) {
        if !self.walks.is_empty()
            && let Some(walk) = self.walks.remove(&Target::Queue(name.clone()))
        {
            self.queue.remove(&walk.place);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many targets are in the queue.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// How many of them are thawed prefixes.
    pub(crate) fn prefix_count(&self) -> usize {
        self.prefixes().count()
    }

    /// Whether waiters of this lock may still have to be granted.
    pub(crate) fn covers(&self, name: &LockName) -> bool {
        self.walks.contains_key(&Target::Queue(name.clone()))
            || self.prefixes().any(|prefix| name.starts_with(prefix))
    }

    /// The locks in the queue.
    pub(crate) fn names(&self) -> impl Iterator<Item = &LockName> {
        self.walks.keys().filter_map(|target| match target {
            Target::Queue(name) => Some(name),
            Target::Prefix(_) => None,
        })
    }

    /// In the order of the queue. A walk that must be repeated is followed by its repetition.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Promotion> {
        let walks =
            self.queue.values().filter_map(|target| Some((target, self.walks.get(target)?)));
        walks.flat_map(|(target, walk)| {
            [Some(walk.rest.clone()), walk.is_to_repeat.then(|| target.whole())]
                .into_iter()
                .flatten()
        })
    }

    fn prefixes(&self) -> impl Iterator<Item = &str> {
        let first = Target::Prefix(Box::default());
        self.walks.range(first..).filter_map(|(target, _)| match target {
            Target::Prefix(prefix) => Some(&**prefix),
            Target::Queue(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn queue(name: &str, passed: Option<u64>) -> Promotion {
        let name = LockName::new(name).unwrap();
        Promotion::Queue { name, passed: passed.map(Ticket) }
    }

    #[test]
    fn a_walk_whose_lock_becomes_free_again_goes_on_and_is_made_once_more() {
        let mut deferred = Deferred::default();
        for promotion in [queue("a", Some(7)), queue("b", None), queue("a", None)] {
            assert!(deferred.push(promotion));
        }
        assert!(!deferred.push(queue("a", None)) && !deferred.push(queue("b", None)));
        let listed: Vec<Promotion> = deferred.iter().collect();
        assert_eq!(listed, [queue("a", Some(7)), queue("a", None), queue("b", None)]);
        let mut restored = Deferred::default();
        assert!(listed.iter().all(|promotion| restored.restore(promotion.clone())));
        assert!(!restored.restore(queue("a", None)), "each has one form only");
        assert_eq!(deferred.pop(), Some(queue("a", Some(7))));
        // It could not be finished. That makes the queue no longer, and keeps the walk that must follow.
        assert!(deferred.push(queue("a", Some(9))));
        assert_eq!(deferred.len(), 2);
        let rest: Vec<Promotion> = core::iter::from_fn(|| deferred.pop()).collect();
        assert_eq!(rest, [queue("b", None), queue("a", Some(9)), queue("a", None)]);
    }

    #[test]
    fn a_lock_that_is_forgotten_leaves_the_line() {
        let mut deferred = Deferred::default();
        deferred.push(queue("a", Some(7)));
        deferred.push(queue("b", None));
        deferred.forget(&LockName::new("a").unwrap());
        assert!(!deferred.covers(&LockName::new("a").unwrap()));
        assert_eq!((deferred.pop(), deferred.pop()), (Some(queue("b", None)), None));
    }
}
