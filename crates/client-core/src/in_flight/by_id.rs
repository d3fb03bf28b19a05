//! Values by ids that rise. Most are taken out soon after they came, in about the same order: they stand in a row,
//! where a place is found by counting. What will stay is set apart, so that the row is short.

use std::collections::{BTreeMap, VecDeque};

/// Places that an empty row keeps room for.
const ROOM_KEPT: usize = 1_024;

#[derive(Debug)]
pub(super) struct ById<V> {
    /// The id of the first in the row.
    first: u64,
    /// The first place of all is never an empty one.
    row: VecDeque<Option<V>>,
    apart: BTreeMap<u64, V>,
}

impl<V> ById<V> {
    pub(super) fn new() -> ById<V> {
        ById { first: 0, row: VecDeque::new(), apart: BTreeMap::new() }
    }

    /// The id is higher than all before.
    pub(super) fn push(&mut self, id: u64, value: V) {
        if self.row.is_empty() {
            self.first = id;
        }
        while self.end() < id {
            self.row.push_back(None);
        }
        self.row.push_back(Some(value));
    }

    pub(super) fn get(&self, id: u64) -> Option<&V> {
        let in_row = self.place(id).and_then(|place| self.row[place].as_ref());
        in_row.or_else(|| self.apart.get(&id))
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut V> {
        let in_row = self.place(id).and_then(|place| self.row[place].as_mut());
        in_row.or_else(|| self.apart.get_mut(&id))
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<V> {
        self.take_from_row(id).or_else(|| self.apart.remove(&id))
    }

    /// It is not expected to be taken out soon.
    pub(super) fn set_apart(&mut self, id: u64) {
        if let Some(value) = self.take_from_row(id) {
            self.apart.insert(id, value);
        }
    }

    /// The lowest id of those that are not set apart.
    pub(super) fn first_in_row(&self) -> Option<u64> {
        (!self.row.is_empty()).then_some(self.first)
    }

    /// With the places of those that are gone, but came after the first.
    pub(super) fn row_len(&self) -> usize {
        self.row.len()
    }

    /// In no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        let in_row = (self.first..).zip(&self.row);
        let in_row = in_row.filter_map(|(id, value)| Some((id, value.as_ref()?)));
        in_row.chain(self.apart.iter().map(|(id, value)| (*id, value)))
    }

    /// In no particular order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut V)> {
        let in_row = (self.first..).zip(&mut self.row);
        let in_row = in_row.filter_map(|(id, value)| Some((id, value.as_mut()?)));
        in_row.chain(self.apart.iter_mut().map(|(id, value)| (*id, value)))
    }

    fn end(&self) -> u64 {
        self.first + self.row.len() as u64
    }

    fn place(&self, id: u64) -> Option<usize> {
        let place = usize::try_from(id.checked_sub(self.first)?).ok()?;
        (place < self.row.len()).then_some(place)
    }

    fn take_from_row(&mut self, id: u64) -> Option<V> {
        let place = self.place(id)?;
        let value = self.row[place].take()?;
        while let Some(None) = self.row.front() {
            self.row.pop_front();
            self.first += 1;
        }
        if self.row.is_empty() {
            self.row.shrink_to(ROOM_KEPT);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        /// After so many ids that nothing has.
        Push(u64),
        Remove(u64),
        SetApart(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..3_u64).prop_map(Step::Push),
            (0..60_u64).prop_map(Step::Remove),
            (0..60_u64).prop_map(Step::SetApart),
        ]
    }

    proptest! {
        #[test]
        fn by_id_agrees_with_a_btree_map(steps in proptest::collection::vec(step(), 0..120)) {
            let (mut by_id, mut tree) = (ById::new(), BTreeMap::new());
            let (mut last, mut apart) = (0, Vec::new());
            for step in steps {
                match step {
                    Step::Push(gap) => {
                        last += gap + 1;
                        by_id.push(last, last * 10);
                        tree.insert(last, last * 10);
                    }
                    Step::Remove(id) => prop_assert_eq!(by_id.remove(id), tree.remove(&id)),
                    Step::SetApart(id) => {
                        by_id.set_apart(id);
                        apart.extend(tree.contains_key(&id).then_some(id));
                    }
                }
                for id in 0..=last + 1 {
                    prop_assert_eq!(by_id.get(id), tree.get(&id));
                    prop_assert_eq!(by_id.get_mut(id).copied(), tree.get(&id).copied());
                }
                let mut all: Vec<_> = by_id.iter().map(|(id, value)| (id, *value)).collect();
                all.sort_unstable();
                prop_assert!(all.into_iter().eq(tree.iter().map(|(id, value)| (*id, *value))));
                let mut in_row = tree.keys().copied().filter(|id| !apart.contains(id));
                prop_assert_eq!(by_id.first_in_row(), in_row.next());
            }
        }
    }
}
