//! An ordered map that wastes little memory, for hundreds of thousands of entries.
//!
//! Entries are in chunks: sorted lists of some kilobytes, which grow a few entries at a time. A full chunk is split if
//! the new entry belongs in its middle, and left full if the entry belongs at its end. So nearly all memory is in use,
//! whatever the order of inserts and removals. (A node of the standard library's B-tree always has room for eleven
//! entries, and ordered inserts leave it half empty.)
//!
//! The first chunk is stored separately: a map with few entries is a single list.
//!
//! Invariants: if the first chunk is empty, so is the map; no other is ever empty. A chunk's own key is not
//! above its first entry, and above the last entry of the chunk before.

mod directory;
mod find;
mod interpolation;

use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cell::Cell;
use core::ops::Bound;

use self::directory::{Directory, EntryPosition};
pub(crate) use self::interpolation::Key;

#[derive(Clone, Debug)]
pub(crate) struct DenseMap<K, V> {
    first: Chunk<K, V>,
    rest: Directory<K, Chunk<K, V>>,
    len: usize,
    found_last: Cell<Spot>,
}

type Chunk<K, V> = Vec<(K, V)>;

/// Identifies a chunk: the first, or one of the others.
type Home = Option<EntryPosition>;

/// The position of an entry, or where it belongs: the chunk, and the index in it.
#[derive(Clone, Copy, Debug, Default)]
struct Spot {
    home: Home,
    at: u32,
}

/// About how large a chunk becomes: what has to be moved to make room in one.
const CHUNK_BYTES: usize = 3 * 1024;
/// Room is made for so many entries at once.
const ROOM: usize = 4;

impl<K, V> Default for DenseMap<K, V> {
    fn default() -> Self {
        DenseMap {
            first: Vec::new(),
            rest: Directory::default(),
            len: 0,
            found_last: Cell::default(),
        }
    }
}

impl<K: Key + Clone, V> DenseMap<K, V> {
    const ENTRIES_MAX: usize = {
        let fitting = CHUNK_BYTES / size_of::<(K, V)>();
        if fitting < 2 * ROOM { 2 * ROOM } else { fitting }
    };

    /// Returns what was there under this key.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find_to_add(&key) {
            Ok(spot) => {
                let there = &mut self.chunk_mut(spot.home)[spot.at as usize].1;
                Some(core::mem::replace(there, value))
            }
            Err(spot) => {
                self.add(spot, (key, value));
                None
            }
        }
    }

    /// Changes the entry, or inserts a default value and changes that. `change` gets the map's own copy of the key, if
    /// there is one.
    pub(crate) fn change_or_add<R>(&mut self, key: &K, change: impl FnOnce(&K, &mut V) -> R) -> R
    where
        V: Default,
    {
        match self.find_to_add(key) {
            Ok(spot) => {
                let (key, value) = &mut self.chunk_mut(spot.home)[spot.at as usize];
                change(key, value)
            }
            Err(spot) => {
                let mut value = V::default();
                let changed = change(key, &mut value);
                self.add(spot, (key.clone(), value));
                changed
            }
        }
    }

    /// Puts a new entry where it belongs.
    fn add(&mut self, spot: Spot, entry: (K, V)) {
        self.len += 1;
        // Behind the last of all more will come.
        let is_end = spot.home == self.rest.last_place();
        let chunk = self.chunk_mut(spot.home);
        let (len, at) = (chunk.len(), spot.at as usize);
        if len >= Self::ENTRIES_MAX {
            return self.split(spot, entry);
        }
        if len == chunk.capacity() {
            let room = if is_end && at == len { ROOM.max(len / 2) } else { ROOM };
            chunk.reserve_exact(room.min(Self::ENTRIES_MAX - len));
        }
        chunk.insert(at, entry);
    }

    /// Inserts a key that is above all others. Chunks are allocated at full size, because more keys follow in order.
    pub(crate) fn push_last(&mut self, key: K, value: V) {
        debug_assert!(self.last_key().is_none_or(|last| *last < key));
        self.len += 1;
        let last = self.rest.last_mut().unwrap_or(&mut self.first);
        if last.len() < Self::ENTRIES_MAX {
            last.reserve_exact(Self::ENTRIES_MAX - last.len());
            last.push((key, value));
        } else {
            let mut chunk = Vec::with_capacity(Self::ENTRIES_MAX);
            let lowest = key.clone();
            chunk.push((key, value));
            self.rest.insert(lowest, chunk);
        }
    }

    /// Makes two chunks of a full one.
    fn split(&mut self, spot: Spot, entry: (K, V)) {
        let (chunk, at) = (self.chunk_mut(spot.home), spot.at as usize);
        // At either end the new entry gets its own chunk, so that ordered inserts leave full chunks.
        let stays = if at == 0 || at == chunk.len() { at } else { chunk.len() / 2 };
        let goes_above = at > 0 && at >= stays;
        let room = if goes_above { ROOM } else { 0 };
        let mut above = Vec::with_capacity(chunk.len() - stays + room);
        above.extend(chunk.drain(stays..));
        if goes_above {
            above.insert(at - stays, entry);
        } else {
            chunk.insert(at, entry);
        }
        give_back_room(chunk);
        if let Some((lowest, _)) = above.first() {
            self.rest.insert(lowest.clone(), above);
        }
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let spot = self.find(key).ok()?;
        let chunk = self.chunk_mut(spot.home);
        let (_, value) = chunk.remove(spot.at as usize);
        give_back_room(chunk);
        if chunk.len() <= Self::ENTRIES_MAX / 4 {
            self.join(spot.home);
        }
        self.len -= 1;
        Some(value)
    }

    /// Removes all up to and including this key.
    pub(crate) fn remove_through(&mut self, key: &K) {
        while !self.first.is_empty() {
            let gone = self.first.partition_point(|(other, _)| other <= key);
            self.len -= gone;
            if gone < self.first.len() {
                self.first.drain(..gone);
                give_back_room(&mut self.first);
                return;
            }
            self.first = self.pop_second();
        }
    }

    fn pop_second(&mut self) -> Chunk<K, V> {
        let second = self.rest.first().and_then(|second| self.rest.remove(second));
        second.map_or(Vec::new(), |(_, chunk)| chunk)
    }

    /// Removes an empty chunk, and joins small neighbours.
    fn join(&mut self, home: Home) {
        let len = self.chunk(home).len();
        let Some(here) = home else {
            if len == 0 {
                self.first = self.pop_second();
            } else if self.rest.first().is_some_and(|second| self.are_few(len, Some(second))) {
                let second = self.pop_second();
                put_together(&mut self.first, second);
            }
            return;
        };
        if len == 0 {
            self.rest.remove(here);
        } else if self.are_few(len, self.rest.before(here)) {
            self.join_upwards(here);
        } else if let Some(after) = self.rest.after(here)
            && self.are_few(len, Some(after))
        {
            self.join_upwards(after);
        }
    }

    /// Whether both together would fill at most half a chunk.
    fn are_few(&self, len: usize, other: Home) -> bool {
        self.chunk(other).len() + len <= Self::ENTRIES_MAX / 2
    }

    /// Puts a chunk behind the one before it.
    fn join_upwards(&mut self, upper: EntryPosition) {
        let before = self.rest.before(upper);
        let Some((_, chunk)) = self.rest.remove(upper) else { return };
        put_together(self.chunk_mut(before), chunk);
    }

    pub(crate) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let spot = self.find(key).ok()?;
        self.chunk_mut(spot.home).get_mut(spot.at as usize).map(|(_, value)| value)
    }

    pub(crate) fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let spot = self.find(key).ok()?;
        self.chunk(spot.home).get(spot.at as usize).map(|(key, value)| (key, value))
    }

    /// A removed position must not be taken for the first chunk.
    fn chunk_at(&self, home: Home) -> Option<&Chunk<K, V>> {
        match home {
            None => Some(&self.first),
            Some(place) => self.rest.get(place),
        }
    }

    /// The first, if there is none there.
    fn chunk(&self, home: Home) -> &Chunk<K, V> {
        home.and_then(|place| self.rest.get(place)).unwrap_or(&self.first)
    }

    fn chunk_mut(&mut self, home: Home) -> &mut Chunk<K, V> {
        home.and_then(|place| self.rest.get_mut(place)).unwrap_or(&mut self.first)
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub(crate) fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        self.get_key_value(key).is_some()
    }

    /// In order, beginning there.
    pub(crate) fn from<Q>(&self, start: Bound<&Q>) -> impl Iterator<Item = (&K, &V)>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let home = match start {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => self.rest.find(key),
        };
        let is_before = |other: &Q| match start {
            Bound::Unbounded => false,
            Bound::Included(key) => other < key,
            Bound::Excluded(key) => other <= key,
        };
        let chunk = self.chunk(home);
        let first = chunk.partition_point(|(other, _)| is_before(other.borrow()));
        let rest = home.map_or_else(|| self.rest.first(), |home| self.rest.after(home));
        let rest = self.rest.from(rest).flatten();
        chunk[first..].iter().chain(rest).map(|(key, value)| (key, value))
    }

    /// In order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let rest = self.rest.from(self.rest.first()).flatten();
        self.first.iter().chain(rest).map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn last_key(&self) -> Option<&K> {
        let last = self.rest.last().unwrap_or(&self.first);
        last.last().map(|(key, _)| key)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

fn put_together<K, V>(lower: &mut Chunk<K, V>, upper: Chunk<K, V>) {
    lower.reserve_exact(upper.len() + ROOM);
    lower.extend(upper);
}

fn give_back_room<K, V>(chunk: &mut Chunk<K, V>) {
    if chunk.is_empty() {
        *chunk = Vec::new();
    } else if chunk.capacity() > chunk.len() + 2 * ROOM {
        chunk.shrink_to(chunk.len() + ROOM);
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::format;

    use super::*;
    use crate::model::id::SessionId;
    use crate::model::name::LockName;

    type Tested = DenseMap<u64, [u64; 15]>;

    impl Key for u64 {}

    fn value(key: u64) -> [u64; 15] {
        [key; 15]
    }

    /// A sequence of numbers without visible order.
    struct Shuffled(u64);

    impl Shuffled {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.0 >> 33
        }
    }

    fn check(map: &Tested, model: &BTreeMap<u64, [u64; 15]>) {
        assert_eq!(map.len(), model.len());
        assert!(map.iter().eq(model.iter()));
        assert_eq!(map.last_key(), model.last_key_value().map(|(key, _)| key));
        assert!(!map.first.is_empty() || map.rest.is_empty());
        let mut above = map.first.last().map(|(key, _)| *key);
        for chunk in map.rest.from(map.rest.first()) {
            assert!(above < chunk.first().map(|(key, _)| *key));
            assert!(chunk.len() <= Tested::ENTRIES_MAX);
            above = chunk.last().map(|(key, _)| *key);
        }
    }

    fn bytes_per_entry(map: &Tested) -> usize {
        let chunks = || map.rest.from(map.rest.first());
        let room: usize = chunks().chain([&map.first]).map(Vec::capacity).sum();
        let chunks = chunks().count() * 128;
        (room * size_of::<(u64, [u64; 15])>() + chunks) / map.len()
    }

    #[test]
    fn a_dense_map_is_an_ordered_map_of_strings() {
        for keys in [20, 200, 2_000] {
            let (mut map, mut model) = (DenseMap::default(), BTreeMap::new());
            let mut shuffled = Shuffled(keys);
            let name = |number| LockName::new(&format!("name-{number:04}")).unwrap();
            for step in 0..20_000 {
                let key = name(shuffled.next() % keys);
                let missing = model.get(&key).copied().unwrap_or_default() + 1;
                match shuffled.next() % 20_000 >= step {
                    true if step % 2 == 0 => {
                        assert_eq!(map.get(&key), model.get(&key));
                        let changed = map.change_or_add(&key, |_, value| {
                            *value += 1;
                            *value
                        });
                        assert_eq!(changed, missing);
                        model.insert(key, changed);
                    }
                    true => assert_eq!(map.insert(key.clone(), step), model.insert(key, step)),
                    false => assert_eq!(map.remove(&key), model.remove(&key)),
                }
                let asked = name(shuffled.next() % keys);
                assert_eq!(map.get(&asked), model.get(&asked));
                assert_eq!(map.get_mut(asked.as_str()), model.get_mut(&asked));
            }
            assert_eq!(map.len(), model.len());
            assert!(map.iter().eq(model.iter()));
        }
    }

    #[test]
    fn a_dense_map_is_an_ordered_map_of_numbers() {
        for keys in [20, 200, 2_000] {
            let (mut map, mut model) = (Tested::default(), BTreeMap::new());
            let mut shuffled = Shuffled(keys);
            for step in 0..20_000 {
                let key = shuffled.next() % keys;
                // It grows at first, then it shrinks.
                if shuffled.next() % 20_000 >= step {
                    assert_eq!(map.insert(key, value(step)), model.insert(key, value(step)));
                } else {
                    assert_eq!(map.remove(&key), model.remove(&key));
                }
                let asked = shuffled.next() % keys;
                assert_eq!(map.get(&asked), model.get(&asked));
                assert_eq!(map.get_mut(&asked), model.get_mut(&asked));
                for start in [Bound::Included(&asked), Bound::Excluded(&asked), Bound::Unbounded] {
                    let next = map.from(start).next();
                    assert_eq!(next, model.range((start, Bound::Unbounded)).next());
                }
                if step % 16 == 0 {
                    check(&map, &model);
                    let start = Bound::Excluded(&asked);
                    assert!(map.from(start).eq(model.range((start, Bound::Unbounded))));
                }
            }
        }
    }

    #[test]
    fn a_dense_map_is_an_ordered_map_for_any_key_distribution() {
        // In one place, spread over all there is, and very unevenly.
        let ways: [fn(u64) -> u128; 3] = [
            |number| u128::from(number % 3_000),
            |number| u128::from(number % 3_000) * (u128::MAX / 3_000),
            |number| 1 << (number % 127) | u128::from(number % 32),
        ];
        for way in ways {
            let (mut map, mut model) = (DenseMap::default(), BTreeMap::new());
            let mut shuffled = Shuffled(11);
            for step in 0..20_000 {
                let key = SessionId(way(shuffled.next()));
                if shuffled.next() % 20_000 >= step {
                    assert_eq!(map.insert(key, [step; 10]), model.insert(key, [step; 10]));
                } else {
                    assert_eq!(map.remove(&key), model.remove(&key));
                }
                let asked = SessionId(way(shuffled.next()));
                assert_eq!(map.get(&asked), model.get(&asked));
                let start = Bound::Excluded(&asked);
                assert_eq!(map.from(start).next(), model.range((start, Bound::Unbounded)).next());
            }
            assert!(map.iter().eq(model.iter()));
        }
    }

    #[test]
    fn ordered_inserts_fill_one_chunk_after_the_other() {
        for count in [0, 1, 30, 1_000, 10_000] {
            let (mut map, mut model) = (Tested::default(), BTreeMap::new());
            for key in (0..count).map(|number| 2 * number) {
                map.push_last(key, value(key));
                model.insert(key, value(key));
            }
            check(&map, &model);
            for key in [0, 1, count, count + 1, 2 * count] {
                assert_eq!(map.insert(key, value(7)), model.insert(key, value(7)));
            }
            check(&map, &model);
        }
    }

    #[test]
    fn a_removed_position_is_not_taken_for_the_first() {
        let (mut map, mut model) = (Tested::default(), BTreeMap::new());
        let most = 2 * Tested::ENTRIES_MAX as u64;
        for key in 0..=most {
            map.insert(key, value(key));
            model.insert(key, value(key));
        }
        for key in (1..most / 2).chain([most, 0]) {
            assert_eq!(map.remove(&key), model.remove(&key));
            check(&map, &model);
        }
    }

    #[test]
    fn remove_through_frees_chunks_at_once() {
        for through in [0, 1, 99, 100, 500, 999, 2_000] {
            let mut map = Tested::default();
            for key in 100..1_000 {
                map.insert(key, value(key));
            }
            map.remove_through(&through);
            let model = (100..1_000).filter(|key| *key > through).map(|key| (key, value(key)));
            check(&map, &model.collect());
        }
    }

    #[test]
    fn nearly_all_memory_is_in_use_whatever_the_order() {
        let entry = size_of::<(u64, [u64; 15])>();
        let ascending = (0..10_000).collect::<Vec<u64>>();
        let descending = (0..10_000).rev().collect();
        let mut shuffled = Shuffled(7);
        let shuffled = (0..10_000).map(|_| shuffled.next()).collect();
        let interleaved = (0..10_000).map(|step| (step % 100) * 1_000_000 + step).collect();
        for keys in [ascending, descending, shuffled, interleaved] {
            let mut map = Tested::default();
            for key in &keys {
                map.insert(*key, value(*key));
            }
            assert!(bytes_per_entry(&map) < entry * 4 / 3, "{}", bytes_per_entry(&map));
            // Most go, and those who stay move together.
            for (step, key) in keys.iter().enumerate() {
                if step % 20 != 0 {
                    map.remove(key);
                }
            }
            assert!(bytes_per_entry(&map) < entry * 2, "{}", bytes_per_entry(&map));
            for key in &keys {
                map.remove(key);
            }
            assert!(map.rest.is_empty());
            assert_eq!((map.len(), map.first.capacity()), (0, 0));
        }
    }
}
