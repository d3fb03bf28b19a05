//! An ordered map that wastes little memory, for what there are hundreds of thousands of.
//!
//! Entries stand in chunks: sorted lists of some kilobytes, which grow a few entries at a time. A chunk that
//! is full is split where the new entry belongs in its middle, and left full where the entry belongs at its
//! end. So nearly all memory is in use in whatever order keys come and go. (The nodes of the standard
//! library's B-tree have room for eleven entries whether they are there or not, and are left half empty
//! by keys that come in order.)
//!
//! The first chunk stands by itself: a map with few entries is a list and nothing else.
//!
//! Invariants: if the first chunk is empty, so is the map; no other is ever empty. A chunk's own key is not
//! above its first entry, and above the last entry of the chunk before.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::ops::Bound;

#[derive(Clone, Debug)]
pub(crate) struct DenseMap<K, V> {
    first: Chunk<K, V>,
    rest: BTreeMap<K, Chunk<K, V>>,
    len: usize,
}

type Chunk<K, V> = Vec<(K, V)>;

/// About how large a chunk becomes: what has to be moved to make room in one.
const CHUNK_BYTES: usize = 3 * 1024;
/// Room is made for so many entries at once.
const ROOM: usize = 4;

impl<K, V> Default for DenseMap<K, V> {
    fn default() -> Self {
        DenseMap { first: Vec::new(), rest: BTreeMap::new(), len: 0 }
    }
}

impl<K: Ord + Clone, V> DenseMap<K, V> {
    const ENTRIES_MAX: usize = {
        let fitting = CHUNK_BYTES / size_of::<(K, V)>();
        if fitting < 2 * ROOM { 2 * ROOM } else { fitting }
    };

    /// Returns what was there under this key.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let chunk = self.home_mut(&key);
        match search(chunk, &key) {
            Ok(at) => Some(core::mem::replace(&mut chunk[at].1, value)),
            Err(at) => {
                let above = Self::place(chunk, at, (key, value));
                if let Some((lowest, _)) = above.first() {
                    self.rest.insert(lowest.clone(), above);
                }
                self.len += 1;
                None
            }
        }
    }

    /// Puts an entry into a chunk. Returns what has no room in it any more: its upper part.
    fn place(chunk: &mut Chunk<K, V>, at: usize, entry: (K, V)) -> Chunk<K, V> {
        if chunk.len() < Self::ENTRIES_MAX {
            if chunk.len() == chunk.capacity() {
                chunk.reserve_exact(ROOM);
            }
            chunk.insert(at, entry);
            return Vec::new();
        }
        // At either end it stands alone: where keys come in order, full chunks stay behind.
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
        above
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let chunk = self.home_mut(key);
        let at = search(chunk, key).ok()?;
        let (_, value) = chunk.remove(at);
        give_back_room(chunk);
        if chunk.len() <= Self::ENTRIES_MAX / 4 {
            self.join(key);
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
        self.rest.pop_first().map_or(Vec::new(), |(_, chunk)| chunk)
    }

    /// Forgets the chunk in which this key was, if it is empty, and puts it together with one beside it if
    /// both are small.
    fn join<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let Some((home, chunk)) = self.rest.range::<Q, _>(up_to(key)).next_back() else {
            let len = self.first.len();
            if len == 0 {
                self.first = self.pop_second();
            } else if self
                .rest
                .first_key_value()
                .is_some_and(|(_, second)| Self::are_few(len, second))
            {
                let second = self.pop_second();
                put_together(&mut self.first, second);
            }
            return;
        };
        let (home, len) = (home.clone(), chunk.len());
        if len == 0 {
            self.rest.remove(home.borrow());
            return;
        }
        let before = (Bound::Unbounded, Bound::Excluded(home.borrow()));
        let before = self.rest.range::<Q, _>(before).next_back();
        let before = before.map_or(&self.first, |(_, chunk)| chunk);
        if Self::are_few(len, before) {
            self.join_upwards(home);
            return;
        }
        let after = (Bound::Excluded(home.borrow()), Bound::Unbounded);
        let after = self.rest.range::<Q, _>(after).next();
        if let Some((after, _)) = after.filter(|(_, chunk)| Self::are_few(len, chunk)) {
            let after = after.clone();
            self.join_upwards(after);
        }
    }

    /// Would they be half a chunk together?
    fn are_few(len: usize, other: &Chunk<K, V>) -> bool {
        other.len() + len <= Self::ENTRIES_MAX / 2
    }

    /// Puts the chunk of this key behind the one before it.
    fn join_upwards(&mut self, upper: K) {
        let Some(chunk) = self.rest.remove(&upper) else { return };
        put_together(self.home_mut(&upper), chunk);
    }

    pub(crate) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let chunk = self.home_mut(key);
        let at = search(chunk, key).ok()?;
        chunk.get_mut(at).map(|(_, value)| value)
    }

    pub(crate) fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let chunk = self.home(key);
        let at = search(chunk, key).ok()?;
        chunk.get(at).map(|(key, value)| (key, value))
    }

    /// The chunk where this key is, or belongs.
    fn home<Q>(&self, key: &Q) -> &Chunk<K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let found = self.rest.range::<Q, _>(up_to(key)).next_back();
        found.map_or(&self.first, |(_, chunk)| chunk)
    }

    fn home_mut<Q>(&mut self, key: &Q) -> &mut Chunk<K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let found = self.rest.range_mut::<Q, _>(up_to(key)).next_back();
        found.map_or(&mut self.first, |(_, chunk)| chunk)
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub(crate) fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.get_key_value(key).is_some()
    }

    /// In order, beginning there.
    pub(crate) fn from<Q>(&self, start: Bound<&Q>) -> impl Iterator<Item = (&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (home, rest) = match start {
            Bound::Unbounded => (&self.first, Bound::Unbounded),
            Bound::Included(key) | Bound::Excluded(key) => (self.home(key), Bound::Excluded(key)),
        };
        let is_before = |other: &Q| match start {
            Bound::Unbounded => false,
            Bound::Included(key) => other < key,
            Bound::Excluded(key) => other <= key,
        };
        let first = home.partition_point(|(other, _)| is_before(other.borrow()));
        let rest = self.rest.range::<Q, _>((rest, Bound::Unbounded));
        let rest = rest.flat_map(|(_, chunk)| chunk);
        home[first..].iter().chain(rest).map(|(key, value)| (key, value))
    }

    /// In order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let rest = self.rest.values().flatten();
        self.first.iter().chain(rest).map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn last_key(&self) -> Option<&K> {
        let last = self.rest.last_key_value().map_or(&self.first, |(_, chunk)| chunk);
        last.last().map(|(key, _)| key)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

fn up_to<Q: ?Sized>(key: &Q) -> (Bound<&Q>, Bound<&Q>) {
    (Bound::Unbounded, Bound::Included(key))
}

fn search<K: Borrow<Q>, V, Q: Ord + ?Sized>(chunk: &Chunk<K, V>, key: &Q) -> Result<usize, usize> {
    chunk.binary_search_by(|(other, _)| other.borrow().cmp(key))
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
    use super::*;

    type Tested = DenseMap<u64, [u64; 15]>;

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
        for (own, chunk) in &map.rest {
            assert!(above < Some(*own) && *own <= chunk[0].0);
            assert!(chunk.len() <= Tested::ENTRIES_MAX);
            above = chunk.last().map(|(key, _)| *key);
        }
    }

    fn bytes_per_entry(map: &Tested) -> usize {
        let room: usize = map.rest.values().chain([&map.first]).map(Vec::capacity).sum();
        let chunks = map.rest.len() * 128;
        (room * size_of::<(u64, [u64; 15])>() + chunks) / map.len()
    }

    #[test]
    fn it_is_an_ordered_map() {
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
                if step % 64 == 0 {
                    check(&map, &model);
                    let start = Bound::Excluded(&asked);
                    assert!(map.from(start).eq(model.range((start, Bound::Unbounded))));
                }
            }
        }
    }

    #[test]
    fn what_is_acknowledged_goes_at_once() {
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
            assert_eq!((map.len(), map.rest.len(), map.first.capacity()), (0, 0, 0));
        }
    }
}
