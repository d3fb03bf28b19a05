//! What is to happen, and when. Things due at the same time happen in the order in which they were
//! planned, so the order never depends on memory addresses or hashes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::history::RealTime;

#[derive(Debug)]
pub(crate) struct Agenda<T> {
    /// When, in which order, and where in `plans`.
    heap: BinaryHeap<Reverse<(RealTime, u64, usize)>>,
    /// What; kept apart because the heap moves its entries around a lot.
    plans: Vec<Option<T>>,
    free: Vec<usize>,
    planned: u64,
}

impl<T> Agenda<T> {
    pub(crate) fn new() -> Agenda<T> {
        Agenda { heap: BinaryHeap::new(), plans: Vec::new(), free: Vec::new(), planned: 0 }
    }

    pub(crate) fn plan(&mut self, due: RealTime, what: T) {
        self.planned += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.plans.push(None);
            self.plans.len() - 1
        });
        self.plans[place] = Some(what);
        self.heap.push(Reverse((due, self.planned, place)));
    }

    /// When the next thing is due.
    pub(crate) fn next_due(&self) -> Option<RealTime> {
        self.heap.peek().map(|Reverse((due, ..))| *due)
    }

    pub(crate) fn next(&mut self) -> Option<T> {
        let Reverse((_, _, place)) = self.heap.pop()?;
        self.free.push(place);
        self.plans[place].take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_of_two_the_one_planned_first() {
        let mut agenda = Agenda::new();
        agenda.plan(RealTime(5), "later");
        agenda.plan(RealTime(2), "first");
        agenda.plan(RealTime(2), "second");
        assert_eq!(agenda.next_due(), Some(RealTime(2)));
        let order: Vec<_> = std::iter::from_fn(|| agenda.next()).collect();
        assert_eq!(order, ["first", "second", "later"]);
    }
}
