//! An ordered map that wastes little memory, for what there are hundreds of thousands of.
//!
//! Entries stand in chunks: sorted lists of some kilobytes, which grow a few entries at a time. A chunk that
//! is full is split where the new entry belongs in its middle, and left full where the entry belongs at its
//! end. So nearly all memory is in use in whatever order keys come and go. (The nodes of the standard
//! library's B-tree have room for eleven entries whether they are there or not, and are left half empty
//! by keys that come in order.)
//!
//! Invariants: no chunk is empty; a chunk's own key is not above its first entry, and above the last entry
//! of the chunk before.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::ops::Bound;

#[derive(Clone, Debug)]
pub(crate) struct DenseMap<K, V> {
    chunks: BTreeMap<K, Chunk<K, V>>,
    len: usize,
}

type Chunk<K, V> = Vec<(K, V)>;

/// About how large a chunk becomes: what has to be moved to make room in one.
const CHUNK_BYTES: usize = 3 * 1024;
/// Room is made for so many entries at once.
const ROOM: usize = 4;

impl<K, V> Default for DenseMap<K, V> {
    fn default() -> Self {
        DenseMap { chunks: BTreeMap::new(), len: 0 }
    }
}

impl<K: Ord + Clone, V> DenseMap<K, V> {
    const ENTRIES_MAX: usize = {
        let fitting = CHUNK_BYTES / size_of::<(K, V)>();
        if fitting < 2 * ROOM { 2 * ROOM } else { fitting }
    };

    /// Returns what was there under this key.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some(chunk) = self.home_mut(&key) else {
            self.insert_before_all(key, value);
            return None;
        };
        match search(chunk, &key) {
            Ok(at) => Some(core::mem::replace(&mut chunk[at].1, value)),
            Err(at) => {
                let above = Self::place(chunk, at, (key, value));
                self.add_chunk(above);
                self.len += 1;
                None
            }
        }
    }

    /// The key is lower than that of any chunk.
    fn insert_before_all(&mut self, key: K, value: V) {
        if let Some((first, mut chunk)) = self.chunks.pop_first() {
            if chunk.len() < Self::ENTRIES_MAX {
                Self::place(&mut chunk, 0, (key.clone(), value));
                self.chunks.insert(key, chunk);
                self.len += 1;
                return;
            }
            self.chunks.insert(first, chunk);
        }
        self.add_chunk(Some(alone((key, value))));
        self.len += 1;
    }

    fn add_chunk(&mut self, chunk: Option<Chunk<K, V>>) {
        if let Some(chunk) = chunk
            && let Some((first, _)) = chunk.first()
        {
            self.chunks.insert(first.clone(), chunk);
        }
    }

    /// Puts an entry into a chunk. Returns what has no room in it any more: its upper part.
    fn place(chunk: &mut Chunk<K, V>, at: usize, entry: (K, V)) -> Option<Chunk<K, V>> {
        if chunk.len() < Self::ENTRIES_MAX {
            make_room(chunk);
            chunk.insert(at, entry);
            return None;
        }
        if at == chunk.len() {
            return Some(alone(entry));
        }
        let middle = chunk.len() / 2;
        let mut above = Vec::with_capacity(chunk.len() - middle + ROOM);
        above.extend(chunk.drain(middle..));
        chunk.shrink_to(middle + ROOM);
        if at <= middle {
            chunk.insert(at, entry);
        } else {
            above.insert(at - middle, entry);
        }
        Some(above)
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let chunk = self.home_mut(key)?;
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
        while let Some(mut first) = self.chunks.first_entry() {
            let chunk = first.get_mut();
            let gone = chunk.partition_point(|(other, _)| other <= key);
            self.len -= gone;
            if gone < chunk.len() {
                chunk.drain(..gone);
                give_back_room(chunk);
                return;
            }
            first.remove();
        }
    }

    /// Forgets the chunk in which this key was, if it is empty, and puts it together with the one beside it
    /// if both are small.
    fn join<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let Some((home, chunk)) = self.chunks.range::<Q, _>(up_to).next_back() else { return };
        let (home, len) = (home.clone(), chunk.len());
        if len == 0 {
            self.chunks.remove(home.borrow());
            return;
        }
        let is_small = |(_, other): &(&K, &Chunk<K, V>)| other.len() + len <= Self::ENTRIES_MAX / 2;
        let after = (Bound::Excluded(home.borrow()), Bound::Unbounded);
        let after = self.chunks.range::<Q, _>(after).next().filter(is_small);
        let before = (Bound::Unbounded, Bound::Excluded(home.borrow()));
        let before = self.chunks.range::<Q, _>(before).next_back().filter(is_small);
        let (lower, upper) = match (before, after) {
            (Some((before, _)), _) => (before.clone(), home),
            (None, Some((after, _))) => (home, after.clone()),
            (None, None) => return,
        };
        if let Some(upper) = self.chunks.remove(upper.borrow())
            && let Some(lower) = self.chunks.get_mut(lower.borrow())
        {
            lower.reserve_exact(upper.len() + ROOM);
            lower.extend(upper);
        }
    }

    pub(crate) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let chunk = self.home_mut(key)?;
        let at = search(chunk, key).ok()?;
        chunk.get_mut(at).map(|(_, value)| value)
    }

    /// The chunk where this key is, if it is anywhere.
    fn home_mut<Q>(&mut self, key: &Q) -> Option<&mut Chunk<K, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        self.chunks.range_mut::<Q, _>(up_to).next_back().map(|(_, chunk)| chunk)
    }

    pub(crate) fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (_, chunk) = self.chunks.range::<Q, _>(up_to).next_back()?;
        let at = search(chunk, key).ok()?;
        chunk.get(at).map(|(key, value)| (key, value))
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
            Bound::Unbounded => (None, Bound::Unbounded),
            Bound::Included(key) | Bound::Excluded(key) => {
                let up_to = (Bound::Unbounded, Bound::Included(key));
                (self.chunks.range::<Q, _>(up_to).next_back(), Bound::Excluded(key))
            }
        };
        let home = home.map_or(&[][..], |(_, chunk)| {
            let is_before = |other: &Q| match start {
                Bound::Unbounded => false,
                Bound::Included(key) => other < key,
                Bound::Excluded(key) => other <= key,
            };
            &chunk[chunk.partition_point(|(other, _)| is_before(other.borrow()))..]
        });
        let rest = self.chunks.range::<Q, _>((rest, Bound::Unbounded));
        let rest = rest.flat_map(|(_, chunk)| chunk);
        home.iter().chain(rest).map(|(key, value)| (key, value))
    }

    /// In order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks.values().flatten().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn last_key(&self) -> Option<&K> {
        let (_, chunk) = self.chunks.last_key_value()?;
        chunk.last().map(|(key, _)| key)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

fn search<K: Borrow<Q>, V, Q: Ord + ?Sized>(
    chunk: &Chunk<K, V>,
    key: &Q,
) -> Result<usize, usize> {
    chunk.binary_search_by(|(other, _)| other.borrow().cmp(key))
}

fn alone<K, V>(entry: (K, V)) -> Chunk<K, V> {
    let mut chunk = Vec::with_capacity(ROOM);
    chunk.push(entry);
    chunk
}

fn make_room<K, V>(chunk: &mut Chunk<K, V>) {
    if chunk.len() == chunk.capacity() {
        chunk.reserve_exact(ROOM);
    }
}

fn give_back_room<K, V>(chunk: &mut Chunk<K, V>) {
    if chunk.capacity() > chunk.len() + 2 * ROOM {
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
        let mut above = None;
        for (own, chunk) in &map.chunks {
            assert!(above < Some(*own) && *own <= chunk[0].0);
            assert!(chunk.len() <= Tested::ENTRIES_MAX);
            above = chunk.last().map(|(key, _)| *key);
        }
    }

    fn bytes_per_entry(map: &Tested) -> usize {
        let room: usize = map.chunks.values().map(Vec::capacity).sum();
        let chunks = map.chunks.len() * 128;
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
            (100..1_000).for_each(|key| drop(map.insert(key, value(key))));
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
            keys.iter().for_each(|key| drop(map.insert(*key, value(*key))));
            assert!(bytes_per_entry(&map) < entry * 4 / 3, "{}", bytes_per_entry(&map));
            // Most go, and those who stay move together.
            for (step, key) in keys.iter().enumerate() {
                if step % 20 != 0 {
                    map.remove(key);
                }
            }
            assert!(bytes_per_entry(&map) < entry * 2, "{}", bytes_per_entry(&map));
            keys.iter().for_each(|key| drop(map.remove(key)));
            assert_eq!((map.len(), map.chunks.len()), (0, 0));
        }
    }
}
