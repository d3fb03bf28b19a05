//! An ordered map that can be snapshotted while it changes.
//!
//! Encoding half a million entries takes longer than callers may wait, so a walk writes a few entries at a time. An
//! entry that changes before the walk has reached it is first copied as it was. So the bytes show the moment at which
//! the walk began, and each entry is written once.
//!
//! The walk ends, however many entries are added and removed meanwhile: it does not go past the entry that was last
//! when it began. Its memory is bounded by the entries at its beginning and those of now. An entry that was added later
//! and removed again leaves nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::{Bound, Deref};

use crate::state::dense_map::{DenseMap, Key};

/// How an entry is encoded. An entry that need not be kept writes nothing.
pub(crate) trait Written<K> {
    fn write(&self, key: &K, bytes: &mut Vec<u8>);
}

/// An entry with more takes the room of several.
const ENTRY_BYTES_USUAL: usize = 128;

/// It derefs to the map for reads. Changes go only through the methods below.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotMap<K, V> {
    map: DenseMap<K, V>,
    walk: Option<Walk<K>>,
}

#[derive(Clone, Debug)]
struct Walk<K> {
    /// All entries up to this key are written.
    done: Option<K>,
    /// The last key when the walk began; none if the map was empty.
    end: Option<K>,
    /// Unwritten entries that have changed since the walk began, as they were then.
    before: BTreeMap<K, Vec<u8>>,
}

impl<K, V> Default for SnapshotMap<K, V> {
    fn default() -> Self {
        SnapshotMap { map: DenseMap::default(), walk: None }
    }
}

impl<K, V> Deref for SnapshotMap<K, V> {
    type Target = DenseMap<K, V>;

    fn deref(&self) -> &DenseMap<K, V> {
        &self.map
    }
}

impl<K: Key + Clone, V: Written<K>> SnapshotMap<K, V> {
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.write_before_change(key);
        self.map.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.write_before_change(&key);
        self.map.insert(key, value)
    }

    /// Of a key that is above all others.
    pub(crate) fn push_last(&mut self, key: K, value: V) {
        self.write_before_change(&key);
        self.map.push_last(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.write_before_change(key);
        let removed = self.map.remove(key);
        if let Some(walk) = &mut self.walk
            && walk.before.get(key).is_some_and(Vec::is_empty)
        {
            // Neither then nor now.
            walk.before.remove(key);
        }
        removed
    }

    /// Changes what is there; if nothing is, what comes of the default is put there. The key is the map's own, if it
    /// has it.
    pub(crate) fn change_or_add<R>(&mut self, key: &K, change: impl FnOnce(&K, &mut V) -> R) -> R
    where
        V: Default,
    {
        self.write_before_change(key);
        self.map.change_or_add(key, change)
    }

    fn write_before_change(&mut self, key: &K) {
        if self.walk.is_some() {
            self.write_as_it_is(key);
        }
    }

    fn write_as_it_is(&mut self, key: &K) {
        let Some(walk) = &mut self.walk else { return };
        #[cfg(feature = "planted")]
        if crate::planted::Bug::WalkMissesChange.is_active() {
            return;
        }
        let is_written = walk.done.as_ref().is_some_and(|done| key <= done);
        if is_written || walk.is_beyond(key) || walk.before.contains_key(key) {
            return;
        }
        let mut bytes = Vec::new();
        if let Some(value) = self.map.get(key) {
            value.write(key, &mut bytes);
        }
        walk.before.insert(key.clone(), bytes);
    }

    /// Begins a walk over the present entries.
    pub(crate) fn begin_walk(&mut self) {
        let end = self.map.last_key().cloned();
        self.walk = Some(Walk { done: None, end, before: BTreeMap::new() });
    }

    pub(crate) fn end_walk(&mut self) {
        self.walk = None;
    }

    /// Writes the next entries until there is no room left; one that is larger than usual takes more of it.
    /// Returns how much is left: none unless all have been written.
    pub(crate) fn walk_on(&mut self, room: usize, bytes: &mut Vec<u8>) -> usize {
        let Some(walk) = &mut self.walk else { return room };
        let start = walk.done.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut live = self.map.from(start).peekable();
        let (mut last_live, mut last_changed) = (None, None);
        let mut left = room;
        while left > 0 {
            let begun = bytes.len();
            let next = live.peek().map(|(key, _)| *key).filter(|key| !walk.is_beyond(key));
            let changed = walk.before.first_entry();
            match changed.filter(|changed| next.is_none_or(|next| changed.key() <= next)) {
                Some(changed) => {
                    let (key, as_it_was) = changed.remove_entry();
                    live.next_if(|(next, _)| **next == key);
                    bytes.extend_from_slice(&as_it_was);
                    last_changed = Some(key);
                }
                None => {
                    let Some((key, value)) = live.next_if(|(key, _)| Some(*key) == next) else {
                        break;
                    };
                    value.write(key, bytes);
                    last_live = Some(key);
                }
            }
            left = left.saturating_sub(1 + (bytes.len() - begun) / ENTRY_BYTES_USUAL);
        }
        let last = last_changed.max(last_live.cloned());
        drop(live);
        if last.is_some() {
            walk.done = last;
        }
        left
    }
}

impl<K: Ord> Walk<K> {
    /// The map was empty when the walk began.
    fn is_beyond(&self, key: &K) -> bool {
        self.end.as_ref().is_none_or(|end| key > end)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    impl Key for u8 {}

    impl Written<u8> for u8 {
        fn write(&self, key: &u8, bytes: &mut Vec<u8>) {
            bytes.extend([*key, *self]);
        }
    }

    fn map() -> SnapshotMap<u8, u8> {
        let mut map = SnapshotMap::default();
        for key in [10, 20, 30, 40] {
            map.insert(key, key + 1);
        }
        map
    }

    const AT_THE_BEGIN: [u8; 8] = [10, 11, 20, 21, 30, 31, 40, 41];

    #[test]
    fn what_changes_during_the_walk_is_written_as_it_was() {
        let mut map = map();
        let mut bytes = Vec::new();
        map.begin_walk();
        assert_eq!(map.walk_on(1, &mut bytes), 0);
        *map.get_mut(&10).unwrap() = 99;
        *map.get_mut(&20).unwrap() = 99;
        *map.get_mut(&20).unwrap() = 98;
        map.remove(&30);
        map.insert(30, 97);
        map.insert(35, 1);
        map.insert(5, 1);
        map.change_or_add(&50, |_, value| *value = 1);
        map.change_or_add(&20, |_, value| *value += 1);
        map.remove(&40);
        assert_eq!(map.walk_on(2, &mut bytes), 0);
        map.remove(&35);
        assert!(map.walk_on(100, &mut bytes) > 0);
        assert_eq!(bytes, AT_THE_BEGIN);
        map.end_walk();
        assert!(map.walk.is_none(), "what changes is not written down any more");
        assert_eq!(map.keys().copied().collect::<Vec<u8>>(), [5, 10, 20, 30, 50]);
    }

    #[test]
    fn without_changes_a_walk_yields_all_entries_and_a_new_walk_starts_over() {
        let mut map = map();
        for step in 1..6 {
            let mut bytes = Vec::new();
            map.begin_walk();
            while map.walk_on(step, &mut bytes) == 0 {}
            assert_eq!(bytes, AT_THE_BEGIN);
        }
    }

    #[test]
    fn what_comes_and_goes_meanwhile_neither_takes_memory_nor_holds_the_walk_up() {
        let mut map = map();
        let mut bytes = Vec::new();
        map.begin_walk();
        let kept = |map: &SnapshotMap<u8, u8>| map.walk.as_ref().map(|walk| walk.before.len());
        for round in 0..4 {
            // Always more than the walk takes in a round, before its end and behind it.
            for key in [21, 22, 23, 24, 41 + 8 * round, 42 + 8 * round, 43 + 8 * round] {
                map.insert(key, 1);
            }
            assert!(kept(&map).unwrap() <= 4, "what came behind its end");
            for key in [21, 22, 23, 24] {
                assert_eq!(map.remove(&key), Some(1));
            }
            assert_eq!(kept(&map), Some(0), "what is gone again");
            let left = map.walk_on(2, &mut bytes);
            assert_eq!(left > 0, round >= 2, "so many rounds as there were entries");
        }
        assert_eq!(bytes, AT_THE_BEGIN);
        let mut empty = SnapshotMap::<u8, u8>::default();
        empty.begin_walk();
        empty.insert(1, 1);
        assert_eq!(empty.walk_on(1, &mut bytes), 1);
        assert_eq!(bytes, AT_THE_BEGIN);
    }

    impl Written<u8> for Vec<u8> {
        fn write(&self, _: &u8, bytes: &mut Vec<u8>) {
            bytes.extend_from_slice(self);
        }
    }

    #[test]
    fn a_large_entry_takes_the_room_of_many_and_is_written_whole() {
        let mut map = SnapshotMap::default();
        for key in 0..6 {
            map.insert(key, vec![key; 10 * ENTRY_BYTES_USUAL]);
        }
        map.begin_walk();
        // As it was: an entry that changes takes as much room as one that does not.
        map.get_mut(&3).unwrap().clear();
        let mut bytes = Vec::new();
        for (written, left) in [(2, 0), (4, 0), (6, 0), (6, 20)] {
            assert_eq!(map.walk_on(20, &mut bytes), left);
            assert_eq!(bytes.len(), written * 10 * ENTRY_BYTES_USUAL);
        }
        assert!(bytes.is_sorted());
    }
}
