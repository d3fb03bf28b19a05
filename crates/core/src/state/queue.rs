//! The queue of a lock: first come, first served.
//!
//! A waiter has a [`Ticket`], by which it can leave from the middle in O(log n). Tickets rise along one queue, and mean
//! nothing outside of it. Waiters are in blocks, so that a position follows from counting blocks instead of waiters:
//! after a leader change, all clients ask for their positions at once.
//!
//! The queue knows how many waiters there are of each mode, and which of them also wait elsewhere. So the next request
//! can be judged without a walk through the queue.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::model::command::{Mode, Policy};
use crate::model::id::{ActorId, RequestId, SessionId};

/// A waiter's place in one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// The waiter at a place. Its session has the details of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    pub(crate) actor: ActorId,
    pub(crate) mode: Mode,
    pub(crate) policy: Policy,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct WaitQueue {
    /// By block number; no block is empty.
    blocks: BTreeMap<u64, BTreeMap<Ticket, Waiter>>,
    counts: Counts,
    /// The waiters whose actors have another place as well, in this queue or elsewhere.
    in_several_queues: BTreeSet<Ticket>,
    /// The waiters that are not shared, and those that are not permits. They show without a walk whether a waiter of
    /// another mode is ahead of a place.
    not_shared: BTreeSet<Ticket>,
    not_permits: BTreeSet<Ticket>,
    /// The `wait_die` waiters.
    wait_die: BTreeSet<Ticket>,
    /// The numbers of permits that waiters for a permit have stated.
    permits: u32,
}

/// The number of waiters of each mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) exclusive: usize,
    pub(crate) shared: usize,
    pub(crate) permits: usize,
}

const TICKETS_PER_BLOCK: u64 = 256;
/// In the middle, since a conversion goes to the front.
const FIRST_TICKET: Ticket = Ticket(1 << 62);

impl Ticket {
    fn block(self) -> u64 {
        self.0 / TICKETS_PER_BLOCK
    }
}

impl Counts {
    pub(crate) const NONE: Counts = Counts { exclusive: 0, shared: 0, permits: 0 };

    pub(crate) fn of(&mut self, mode: Mode) -> &mut usize {
        match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
            Mode::Permit { .. } => &mut self.permits,
        }
    }

    pub(crate) fn total(&self) -> usize {
        self.exclusive + self.shared + self.permits
    }

    /// Whether all waiters want this mode, and could hold it together.
    pub(crate) fn are_all_like(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.total() == 0,
            Mode::Shared => self.exclusive == 0 && self.permits == 0,
            Mode::Permit { .. } => self.exclusive == 0 && self.shared == 0,
        }
    }
}

impl WaitQueue {
    pub(crate) const EMPTY: WaitQueue = WaitQueue {
        blocks: BTreeMap::new(),
        counts: Counts::NONE,
        in_several_queues: BTreeSet::new(),
        not_shared: BTreeSet::new(),
        not_permits: BTreeSet::new(),
        wait_die: BTreeSet::new(),
        permits: 0,
    };

    /// Takes a place at the end.
    pub(crate) fn push(&mut self, waiter: Waiter) -> Ticket {
        let ticket = self.last_ticket().map_or(FIRST_TICKET, |Ticket(last)| Ticket(last + 1));
        self.insert(ticket, waiter);
        ticket
    }

    /// Takes a place before all others.
    pub(crate) fn push_front(&mut self, waiter: Waiter) -> Ticket {
        let first = self.first().map(|(ticket, _)| ticket);
        let ticket = first.map_or(FIRST_TICKET, |Ticket(first)| Ticket(first - 1));
        self.insert(ticket, waiter);
        ticket
    }

    /// Takes the place that the ticket says, which is free.
    pub(crate) fn insert(&mut self, ticket: Ticket, waiter: Waiter) {
        *self.counts.of(waiter.mode) += 1;
        if let Mode::Permit { limit } = waiter.mode {
            self.permits = limit;
        }
        if waiter.policy == Policy::WaitDie {
            self.wait_die.insert(ticket);
        }
        if waiter.mode != Mode::Shared {
            self.not_shared.insert(ticket);
        }
        if !matches!(waiter.mode, Mode::Permit { .. }) {
            self.not_permits.insert(ticket);
        }
        self.blocks.entry(ticket.block()).or_default().insert(ticket, waiter);
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let block = self.blocks.get_mut(&ticket.block())?;
        let waiter = block.remove(&ticket)?;
        if block.is_empty() {
            self.blocks.remove(&ticket.block());
        }
        *self.counts.of(waiter.mode) -= 1;
        self.in_several_queues.remove(&ticket);
        self.wait_die.remove(&ticket);
        self.not_shared.remove(&ticket);
        self.not_permits.remove(&ticket);
        Some(waiter)
    }

    /// Marks whether the waiter's actor has another place as well.
    pub(crate) fn set_in_several_queues(&mut self, ticket: Ticket, is_in_several: bool) {
        if is_in_several {
            self.in_several_queues.insert(ticket);
        } else {
            self.in_several_queues.remove(&ticket);
        }
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Waiter> {
        self.blocks.get(&ticket.block())?.get(&ticket)
    }

    pub(crate) fn first(&self) -> Option<(Ticket, &Waiter)> {
        let (_, block) = self.blocks.first_key_value()?;
        block.first_key_value().map(|(ticket, waiter)| (*ticket, waiter))
    }

    /// The next waiter after this place; without a place, the first one.
    pub(crate) fn after(&self, ticket: Option<Ticket>) -> Option<(Ticket, &Waiter)> {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::LastInFirstOut.is_active() {
            return if ticket.is_none() { self.iter().last() } else { None };
        }
        let Some(ticket) = ticket else { return self.first() };
        let next = Ticket(ticket.0.saturating_add(1));
        let beside = self.blocks.get(&ticket.block()).and_then(|block| block.range(next..).next());
        let next = beside.or_else(|| {
            let (_, block) = self.blocks.range(ticket.block().saturating_add(1)..).next()?;
            block.first_key_value()
        });
        next.map(|(ticket, waiter)| (*ticket, waiter))
    }

    pub(crate) fn last_ticket(&self) -> Option<Ticket> {
        let (_, block) = self.blocks.last_key_value()?;
        block.last_key_value().map(|(ticket, _)| *ticket)
    }

    /// The last `wait_die` waiter: each is older than all of them before it.
    pub(crate) fn last_wait_die(&self) -> Option<&Waiter> {
        self.get(*self.wait_die.last()?)
    }

    /// The waiters before this place whose actors have other places as well; without a place, all such waiters.
    pub(crate) fn in_several_queues_before(
        &self,
        end: Option<Ticket>,
    ) -> impl Iterator<Item = (Ticket, &Waiter)> {
        let end = end.unwrap_or(Ticket(u64::MAX));
        self.in_several_queues.range(..end).filter_map(|ticket| Some((*ticket, self.get(*ticket)?)))
    }

    /// The last waiter before this place that could not share the lock with this mode; without a place, the last of
    /// all.
    pub(crate) fn last_unlike_before(&self, mode: Mode, end: Option<Ticket>) -> Option<Ticket> {
        let end = end.unwrap_or(Ticket(u64::MAX));
        match mode {
            Mode::Exclusive => self.last_ticket().filter(|last| *last < end),
            Mode::Shared => self.not_shared.range(..end).next_back().copied(),
            Mode::Permit { .. } => self.not_permits.range(..end).next_back().copied(),
        }
    }

    /// Whether all waiters before this place could share the lock with this mode; without a place, all waiters.
    pub(crate) fn all_before_are_like(&self, mode: Mode, end: Option<Ticket>) -> bool {
        let first_unlike = match mode {
            Mode::Exclusive => self.first().map(|(ticket, _)| ticket),
            Mode::Shared => self.not_shared.first().copied(),
            Mode::Permit { .. } => self.not_permits.first().copied(),
        };
        first_unlike.is_none_or(|first| end.is_some_and(|end| first >= end))
    }

    /// 1 is the first in the queue.
    pub(crate) fn position(&self, ticket: Ticket) -> u64 {
        let before: usize = self.blocks.range(..ticket.block()).map(|(_, block)| block.len()).sum();
        let beside =
            self.blocks.get(&ticket.block()).map_or(0, |block| block.range(..ticket).count());
        (before + beside + 1) as u64
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, &Waiter)> {
        self.blocks.values().flatten().map(|(ticket, waiter)| (*ticket, waiter))
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn stated_permits(&self) -> Option<u32> {
        (self.counts.permits > 0).then_some(self.permits)
    }

    pub(crate) fn in_several_queues(&self) -> &BTreeSet<Ticket> {
        &self.in_several_queues
    }

    pub(crate) fn len(&self) -> usize {
        self.counts.total()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn waiter(request: u64) -> Waiter {
        Waiter {
            session: SessionId(1),
            request: RequestId(request),
            actor: ActorId(0),
            mode: Mode::Exclusive,
            policy: Policy::Detect,
        }
    }

    #[test]
    fn positions_are_exact_however_many_left_from_the_middle() {
        let mut queue = WaitQueue::default();
        let tickets: Vec<Ticket> = (0..2_000).map(|request| queue.push(waiter(request))).collect();
        for ticket in tickets.iter().filter(|ticket| ticket.0 % 3 == 0) {
            assert!(queue.remove(*ticket).is_some());
            assert!(queue.remove(*ticket).is_none());
        }
        let rest: Vec<Ticket> = queue.iter().map(|(ticket, _)| ticket).collect();
        assert_eq!(rest.len(), queue.len());
        let mut last = None;
        for (ahead, ticket) in rest.iter().enumerate() {
            assert_eq!(queue.position(*ticket), ahead as u64 + 1);
            assert_eq!(queue.after(last).map(|(next, _)| next), Some(*ticket));
            last = Some(*ticket);
        }
        assert!(queue.after(last).is_none());
        for ticket in rest {
            assert_eq!(queue.first().map(|(first, _)| first), Some(ticket));
            queue.remove(ticket);
        }
        assert!(queue.is_empty() && queue.blocks.is_empty());
    }

    #[test]
    fn who_goes_to_the_front_is_next() {
        let mut queue = WaitQueue::default();
        queue.push(waiter(1));
        let front = queue.push_front(waiter(2));
        assert_eq!(queue.position(front), 1);
        assert_eq!(queue.first().map(|(_, waiter)| waiter.request), Some(RequestId(2)));
    }
}
