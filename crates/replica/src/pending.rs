//! The proposals of this leader that are not applied yet: the callers' tickets, and the commands, so that the leader
//! need not decode its own entries.
//!
//! An entry is identified by its index and its term. Only one leader writes in a term, so a committed entry with a
//! known index and term is exactly what this leader proposed. When the leader steps down, it drops all of them.

use std::collections::VecDeque;

use holdfast_core::Command;

use crate::effect::Ticket;

/// The most commands that are kept. With more under way the leader waits for its peers anyway, and keeps only the
/// tickets of the rest.
const COMMANDS_MAX: usize = 16_384;

/// A command, and its caller's ticket; none if the leader itself proposed it.
pub(crate) type Call = (Option<Ticket>, Command);

/// Oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    batches: VecDeque<PendingBatch>,
    /// How many commands are kept.
    commands: usize,
}

#[derive(Debug)]
struct PendingBatch {
    index: u64,
    term: u64,
    proposed: Proposed,
}

/// What this leader knows about an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Proposed {
    /// The decoded commands, with their callers.
    Calls(Vec<Call>),
    /// Only the callers, one per command; the commands are decoded from the entry. Empty if another leader proposed it.
    Tickets(Vec<Option<Ticket>>),
}

impl Proposed {
    fn commands(&self) -> usize {
        match self {
            Proposed::Calls(calls) => calls.len(),
            Proposed::Tickets(_) => 0,
        }
    }

    fn into_tickets(self) -> Vec<Option<Ticket>> {
        match self {
            Proposed::Calls(calls) => calls.into_iter().map(|(ticket, _)| ticket).collect(),
            Proposed::Tickets(tickets) => tickets,
        }
    }
}

impl Pending {
    pub(crate) fn push(&mut self, index: u64, term: u64, calls: Vec<Call>) {
        let mut proposed = Proposed::Calls(calls);
        if self.commands + proposed.commands() > COMMANDS_MAX {
            proposed = Proposed::Tickets(proposed.into_tickets());
        }
        self.commands += proposed.commands();
        self.batches.push_back(PendingBatch { index, term, proposed });
    }

    /// Takes what is known about the entry that is being applied.
    pub(crate) fn take(&mut self, index: u64, term: u64) -> Proposed {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::AnswersOfAnotherTerm.is_active() {
            self.batches.retain(|batch| batch.index >= index);
            let taken = self.batches.iter().position(|batch| batch.index == index);
            let taken = taken.and_then(|place| self.batches.remove(place));
            let tickets = taken.map(|batch| batch.proposed.into_tickets());
            return Proposed::Tickets(tickets.unwrap_or_default());
        }
        let is_it = |batch: &PendingBatch| (batch.index, batch.term) == (index, term);
        if !self.batches.front().is_some_and(is_it) {
            return Proposed::Tickets(Vec::new());
        }
        let taken = self.batches.pop_front().map(|batch| batch.proposed);
        let proposed = taken.unwrap_or(Proposed::Tickets(Vec::new()));
        self.commands -= proposed.commands();
        proposed
    }

    /// Leadership is gone: all who wait.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Ticket> + '_ {
        self.commands = 0;
        self.batches.drain(..).flat_map(|batch| batch.proposed.into_tickets()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(tickets: &[Option<Ticket>]) -> Vec<Call> {
        tickets.iter().map(|ticket| (*ticket, Command::Tick)).collect()
    }

    const UNKNOWN: Proposed = Proposed::Tickets(Vec::new());

    #[test]
    fn an_entry_is_answered_once_to_its_proposers_of_the_same_term() {
        let mut pending = Pending::default();
        let both = [Some(Ticket(1)), None];
        pending.push(7, 3, calls(&both));
        pending.push(8, 3, calls(&[Some(Ticket(2))]));
        assert_eq!(pending.take(7, 4), UNKNOWN, "another leader's entry in its place");
        assert_eq!(pending.take(6, 3), UNKNOWN, "an entry of before");
        assert_eq!(pending.take(7, 3), Proposed::Calls(calls(&both)));
        assert_eq!(pending.take(7, 3), UNKNOWN);
        assert_eq!(pending.drain().collect::<Vec<_>>(), [Ticket(2)]);
        assert_eq!(pending.take(8, 3), UNKNOWN);
    }

    #[test]
    fn beyond_a_limit_only_the_tickets_of_pending_commands_are_kept() {
        let mut pending = Pending::default();
        let most: Vec<_> = (0..COMMANDS_MAX as u64).map(|number| Some(Ticket(number))).collect();
        let one = [Some(Ticket(7))];
        pending.push(1, 3, calls(&most));
        pending.push(2, 3, calls(&one));
        assert_eq!(pending.take(1, 3), Proposed::Calls(calls(&most)));
        assert_eq!(pending.take(2, 3), Proposed::Tickets(one.to_vec()));
        pending.push(3, 3, calls(&most));
        assert_eq!(pending.drain().count(), COMMANDS_MAX);
        pending.push(1, 4, calls(&one));
        assert_eq!(pending.take(1, 4), Proposed::Calls(calls(&one)), "there is room again");
    }
}
