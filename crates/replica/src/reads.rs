//! Linearizable reads. A read is served once a quorum has confirmed, after its arrival, that this replica still leads,
//! and once everything committed by then is applied. One round of confirmation serves all reads that waited when it
//! began. A read that arrives during a round does not wait for its end: the next round begins with the next turn.

use std::collections::VecDeque;

use crate::effect::Ticket;

/// A round takes about two turns. With more rounds under way, reads would not be served sooner.
const ROUNDS_MAX: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Arrived since the last round began.
    waiting: Vec<Ticket>,
    /// Under way, the oldest first.
    rounds: VecDeque<Round>,
    /// Confirmed reads, with the index that must be applied first.
    confirmed: Vec<(u64, Vec<Ticket>)>,
    last_context: u64,
}

#[derive(Debug)]
struct Round {
    context: u64,
    tickets: Vec<Ticket>,
    age_ticks: u64,
}

impl Reads {
    pub(crate) fn push(&mut self, ticket: Ticket) {
        self.waiting.push(ticket);
    }

    /// Begins a round if reads wait, and returns its context. A round without an answer for `timeout_ticks` was lost.
    /// Its reads join the next round, under a new context, so that a late answer to the old round cannot confirm it.
    pub(crate) fn begin_round(&mut self, timeout_ticks: u64) -> Option<u64> {
        let lost = self.rounds.iter().take_while(|round| round.age_ticks >= timeout_ticks).count();
        self.waiting.extend(self.rounds.drain(..lost).flat_map(|round| round.tickets));
        if self.rounds.len() >= ROUNDS_MAX || self.waiting.is_empty() {
            return None;
        }
        self.last_context += 1;
        let tickets = std::mem::take(&mut self.waiting);
        self.rounds.push_back(Round { context: self.last_context, tickets, age_ticks: 0 });
        Some(self.last_context)
    }

    pub(crate) fn age(&mut self, ticks: u64) {
        for round in &mut self.rounds {
            round.age_ticks += ticks;
        }
    }

    /// A quorum confirmed the round with this context, at this commit index.
    pub(crate) fn confirm(&mut self, context: u64, index: u64) {
        let place = self.rounds.iter().position(|round| round.context == context);
        if let Some(round) = place.and_then(|place| self.rounds.remove(place)) {
            self.confirmed.push((index, round.tickets));
        }
    }

    /// The reads that may be served from a table that is applied up to `applied`.
    pub(crate) fn take_served(&mut self, applied: u64) -> impl Iterator<Item = Ticket> + '_ {
        self.confirmed
            .extract_if(.., move |(index, _)| *index <= applied)
            .flat_map(|(_, tickets)| tickets)
    }

    /// No read waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.rounds.is_empty() && self.confirmed.is_empty()
    }

    /// Removes and returns all waiting reads, because leadership is lost.
    pub(crate) fn drain(&mut self) -> Vec<Ticket> {
        let mut all = std::mem::take(&mut self.waiting);
        all.extend(self.rounds.drain(..).flat_map(|round| round.tickets));
        all.extend(self.confirmed.drain(..).flat_map(|(_, tickets)| tickets));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_serves_earlier_reads_once_their_index_is_applied() {
        let mut reads = Reads::default();
        reads.push(Ticket(1));
        let context = reads.begin_round(10).unwrap();
        reads.push(Ticket(2));
        reads.confirm(context, 7);
        assert_eq!(reads.take_served(6).collect::<Vec<_>>(), []);
        assert_eq!(reads.take_served(7).collect::<Vec<_>>(), [Ticket(1)]);
        assert!(reads.begin_round(10).is_some(), "the second read gets a round of its own");
    }

    #[test]
    fn a_read_during_a_round_does_not_wait_for_its_end() {
        let mut reads = Reads::default();
        reads.push(Ticket(1));
        let first = reads.begin_round(10).unwrap();
        reads.push(Ticket(2));
        let second = reads.begin_round(10).unwrap();
        reads.confirm(second, 5);
        assert_eq!(reads.take_served(9).collect::<Vec<_>>(), [Ticket(2)], "each by its own round");
        reads.confirm(first, 5);
        assert_eq!(reads.take_served(9).collect::<Vec<_>>(), [Ticket(1)]);
    }

    #[test]
    fn there_is_a_limit_to_rounds_under_way() {
        let mut reads = Reads::default();
        let mut begin = |number: u64| {
            reads.push(Ticket(number));
            reads.begin_round(10)
        };
        let under_way = (1..=10).filter_map(&mut begin).count();
        assert_eq!(under_way, ROUNDS_MAX);
        reads.confirm(2, 5);
        assert_eq!(reads.take_served(9).collect::<Vec<_>>(), [Ticket(2)]);
        let next = reads.begin_round(10).unwrap();
        reads.confirm(next, 5);
        assert_eq!(reads.take_served(9).count(), 10 - ROUNDS_MAX, "all who waited, together");
    }

    #[test]
    fn a_round_is_given_up_only_after_its_timeout() {
        let mut reads = Reads::default();
        reads.push(Ticket(1));
        reads.age(50);
        let context = reads.begin_round(10).unwrap();
        reads.age(4);
        reads.age(5);
        assert_eq!(reads.begin_round(10), None, "its age counts from its beginning");
        reads.confirm(context, 3);
        assert_eq!(reads.take_served(3).collect::<Vec<_>>(), [Ticket(1)]);
        assert_eq!(reads.begin_round(10), None, "no read waits");
    }

    #[test]
    fn all_waiting_reads_are_drained_when_leadership_is_lost() {
        let mut reads = Reads::default();
        reads.push(Ticket(1));
        let context = reads.begin_round(10).unwrap();
        reads.confirm(context, 9);
        reads.push(Ticket(2));
        reads.begin_round(10).unwrap();
        reads.push(Ticket(3));
        let mut all = reads.drain();
        all.sort_unstable();
        assert_eq!(all, [Ticket(1), Ticket(2), Ticket(3)]);
        assert_eq!(reads.drain(), []);
    }

    #[test]
    fn a_lost_round_is_repeated_under_a_new_context() {
        let mut reads = Reads::default();
        reads.push(Ticket(1));
        let lost = reads.begin_round(10).unwrap();
        reads.age(10);
        let again = reads.begin_round(10).unwrap();
        assert_ne!(lost, again);
        reads.confirm(lost, 3);
        assert_eq!(reads.take_served(9).count(), 0);
        reads.confirm(again, 3);
        assert_eq!(reads.take_served(9).collect::<Vec<_>>(), [Ticket(1)]);
    }
}
