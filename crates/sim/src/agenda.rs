//! What is to happen, and when. Things due at the same time happen in the order in which they were
//! planned, so the order never depends on memory addresses or hashes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::history::RealTime;

#[derive(Debug)]
pub(crate) struct Agenda<T> {
    heap: BinaryHeap<Entry<T>>,
    planned: u64,
}

#[derive(Debug)]
struct Entry<T> {
    due: RealTime,
    order: u64,
    what: T,
}

impl<T> Agenda<T> {
    pub(crate) fn new() -> Agenda<T> {
        Agenda { heap: BinaryHeap::new(), planned: 0 }
    }

    pub(crate) fn plan(&mut self, due: RealTime, what: T) {
        self.planned += 1;
        self.heap.push(Entry { due, order: self.planned, what });
    }

    pub(crate) fn next(&mut self) -> Option<(RealTime, T)> {
        self.heap.pop().map(|entry| (entry.due, entry.what))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.order) == (other.due, other.order)
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The heap gives the greatest first, so the earliest is the greatest.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
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
        let order: Vec<_> = std::iter::from_fn(|| agenda.next()).map(|(_, what)| what).collect();
        assert_eq!(order, ["first", "second", "later"]);
    }
}
