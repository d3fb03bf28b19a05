//! The queue of a resource: first come, first served.
//!
//! A waiter has a [`Ticket`], by which it can leave from the middle in O(log n). Tickets rise along
//! one queue; they mean nothing outside of it. Waiters stand in blocks, so that a position can be
//! told by counting blocks instead of waiters: after a leader change everybody asks again at once.

use alloc::collections::BTreeMap;

use super::resource::Claim;
use crate::time::LogicalTime;

/// A place in one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) claim: Claim,
    pub(crate) queued_at: LogicalTime,
    /// When it stops waiting.
    pub(crate) deadline: LogicalTime,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct WaitQueue {
    /// By block number; no block is empty.
    blocks: BTreeMap<u64, BTreeMap<Ticket, Waiter>>,
    len: usize,
}

const TICKETS_PER_BLOCK: u64 = 256;

impl Ticket {
    fn block(self) -> u64 {
        self.0 / TICKETS_PER_BLOCK
    }
}

impl WaitQueue {
    /// Takes a place at the end.
    pub(crate) fn push(&mut self, waiter: Waiter) -> Ticket {
        let ticket = self.last_ticket().map_or(Ticket(1), |Ticket(last)| Ticket(last + 1));
        self.insert(ticket, waiter);
        ticket
    }

    /// Takes the place that the ticket says.
    pub(crate) fn insert(&mut self, ticket: Ticket, waiter: Waiter) {
        let replaced = self.blocks.entry(ticket.block()).or_default().insert(ticket, waiter);
        if replaced.is_none() {
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let block = self.blocks.get_mut(&ticket.block())?;
        let waiter = block.remove(&ticket)?;
        if block.is_empty() {
            self.blocks.remove(&ticket.block());
        }
        self.len -= 1;
        Some(waiter)
    }

    pub(crate) fn first(&self) -> Option<(Ticket, &Waiter)> {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::LastInFirstOut.is_active() {
            return self.iter().last();
        }
        let (_, block) = self.blocks.first_key_value()?;
        block.first_key_value().map(|(ticket, waiter)| (*ticket, waiter))
    }

    pub(crate) fn last_ticket(&self) -> Option<Ticket> {
        let (_, block) = self.blocks.last_key_value()?;
        block.last_key_value().map(|(ticket, _)| *ticket)
    }

    /// 1 is next in line.
    pub(crate) fn position(&self, ticket: Ticket) -> u64 {
        let before: usize = self.blocks.range(..ticket.block()).map(|(_, block)| block.len()).sum();
        let beside =
            self.blocks.get(&ticket.block()).map_or(0, |block| block.range(..ticket).count());
        (before + beside + 1) as u64
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, &Waiter)> {
        self.blocks.values().flatten().map(|(ticket, waiter)| (*ticket, waiter))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Mode;
    use crate::id::{ActorId, RequestId, SessionId};
    use alloc::vec::Vec;

    fn waiter(request: u64) -> Waiter {
        let claim = Claim {
            session: SessionId(1),
            request: RequestId(request),
            actor: ActorId(0),
            mode: Mode::Exclusive,
            ttl: None,
            max_hold: None,
            metadata: [].into(),
        };
        Waiter { claim, queued_at: LogicalTime::ZERO, deadline: LogicalTime::ZERO }
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
        for (ahead, ticket) in rest.iter().enumerate() {
            assert_eq!(queue.position(*ticket), ahead as u64 + 1);
        }
        for ticket in rest {
            assert_eq!(queue.first().map(|(first, _)| first), Some(ticket));
            queue.remove(ticket);
        }
        assert!(queue.is_empty() && queue.blocks.is_empty());
    }
}
