//! Who waits for which entry of the log.

use std::collections::VecDeque;

use crate::effect::Ticket;

/// The batches that this leader has proposed and not yet seen applied, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    batches: VecDeque<PendingBatch>,
}

#[derive(Debug)]
struct PendingBatch {
    index: u64,
    term: u64,
    /// One per command; none for those that the leader proposed for itself.
    tickets: Vec<Option<Ticket>>,
}

impl Pending {
    pub(crate) fn push(&mut self, index: u64, term: u64, tickets: Vec<Option<Ticket>>) {
        self.batches.push_back(PendingBatch { index, term, tickets });
    }

    /// The tickets of the entry that is being applied; empty if it was proposed by another leader.
    pub(crate) fn take(&mut self, index: u64, term: u64) -> Vec<Option<Ticket>> {
        #[cfg(feature = "planted")]
        if crate::planted::Bug::AnswersOfAnotherTerm.is_active() {
            self.batches.retain(|batch| batch.index >= index);
            let taken = self.batches.iter().position(|batch| batch.index == index);
            let taken = taken.and_then(|place| self.batches.remove(place));
            return taken.map(|batch| batch.tickets).unwrap_or_default();
        }
        match self.batches.front() {
            Some(front) if front.index == index && front.term == term => {
                self.batches.pop_front().map(|batch| batch.tickets).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Leadership is gone: all who wait.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Ticket> + '_ {
        self.batches.drain(..).flat_map(|batch| batch.tickets).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_answered_to_those_who_proposed_it_in_its_term_and_once() {
        let mut pending = Pending::default();
        pending.push(7, 3, vec![Some(Ticket(1)), None]);
        pending.push(8, 3, vec![Some(Ticket(2))]);
        assert_eq!(pending.take(7, 4), [], "another leader's entry in its place");
        assert_eq!(pending.take(6, 3), [], "an entry of before");
        assert_eq!(pending.take(7, 3), [Some(Ticket(1)), None]);
        assert_eq!(pending.take(7, 3), []);
        assert_eq!(pending.drain().collect::<Vec<_>>(), [Ticket(2)]);
        assert_eq!(pending.take(8, 3), []);
    }
}
