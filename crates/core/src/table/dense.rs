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
//!
//! A command looks at the same key several times, and numbers come one after the other, so the map remembers where
//! it looked last and looks there and right after it first. What it remembers is checked against the entries that
//! stand there, and need not be kept up to date.

mod directory;
mod guess;
mod hints;

use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cell::Cell;
use core::cmp::Ordering;
use core::ops::Bound;

use self::directory::{Directory, Place};
pub(crate) use self::guess::Key;
use self::guess::search;
use self::hints::Hints;

#[derive(Clone, Debug)]
pub(crate) struct DenseMap<K, V> {
    first: Chunk<K, V>,
    rest: Directory<K, Chunk<K, V>>,
    len: usize,
    looked_last: Cell<(Home, u32)>,
    /// Of a map with very many entries.
    hints: Option<Hints>,
}

type Chunk<K, V> = Vec<(K, V)>;

/// Which chunk: the first, or one of the others.
type Home = Option<Place>;

/// About how large a chunk becomes: what has to be moved to make room in one.
const CHUNK_BYTES: usize = 3 * 1024;
/// Room is made for so many entries at once.
const ROOM: usize = 4;
/// A map with more has hints.
const LEN_WITHOUT_HINTS: usize = if cfg!(test) { 100 } else { 10_000 };

impl<K, V> Default for DenseMap<K, V> {
    fn default() -> Self {
        DenseMap {
            first: Vec::new(),
            rest: Directory::default(),
            len: 0,
            looked_last: Cell::default(),
            hints: None,
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
        let (home, found) = self.look(&key);
        let chunk = self.chunk_mut(home);
        match found {
            Ok(at) => Some(core::mem::replace(&mut chunk[at].1, value)),
            Err(at) => {
                let above = Self::place(chunk, at, (key, value));
                if let Some((lowest, _)) = above.first() {
                    self.rest.insert(lowest.clone(), above);
                }
                self.count_one_more();
                None
            }
        }
    }

    /// Of a key that is above all others. Where many come in order, chunks are made as large as they become.
    pub(crate) fn push_last(&mut self, key: K, value: V) {
        debug_assert!(self.last_key().is_none_or(|last| *last < key));
        self.count_one_more();
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

    fn count_one_more(&mut self) {
        self.len += 1;
        if self.len > LEN_WITHOUT_HINTS && self.hints.is_none() {
            self.hints = Some(Hints::new());
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
        Q: Key + ?Sized,
    {
        let (home, found) = self.look(key);
        let at = found.ok()?;
        let chunk = self.chunk_mut(home);
        let (_, value) = chunk.remove(at);
        give_back_room(chunk);
        if chunk.len() <= Self::ENTRIES_MAX / 4 {
            self.join(home);
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

    /// Forgets a chunk that is empty, and puts it together with one beside it if both are small.
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

    /// Would they be half a chunk together?
    fn are_few(&self, len: usize, other: Home) -> bool {
        self.chunk(other).len() + len <= Self::ENTRIES_MAX / 2
    }

    /// Puts a chunk behind the one before it.
    fn join_upwards(&mut self, upper: Place) {
        let before = self.rest.before(upper);
        let Some((_, chunk)) = self.rest.remove(upper) else { return };
        put_together(self.chunk_mut(before), chunk);
    }

    pub(crate) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let (home, found) = self.look(key);
        let at = found.ok()?;
        self.chunk_mut(home).get_mut(at).map(|(_, value)| value)
    }

    pub(crate) fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let (home, found) = self.look(key);
        let at = found.ok()?;
        self.chunk(home).get(at).map(|(key, value)| (key, value))
    }

    /// The chunk where this key is, or belongs, and the place in it.
    fn look<Q>(&self, key: &Q) -> (Home, Result<usize, usize>)
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let (home, at) = self.looked_last.get();
        let chunk = match home {
            None => Some(&self.first),
            // Gone, it must not be taken for the first.
            Some(place) => self.rest.get(place),
        };
        let is_last = home == self.rest.last_place();
        if let Some(found) = chunk.and_then(|chunk| look_again(chunk, at as usize, key, is_last)) {
            let (Ok(at) | Err(at)) = found;
            self.looked_last.set((home, at as u32));
            return (home, found);
        }
        let hints = self.hints.as_ref().filter(|_| !Q::IS_SPREAD_EVENLY);
        let slot = hints.map(|hints| hints.slot(key));
        let hint = slot.as_ref().and_then(|slot| slot.get());
        let home = hint.filter(|home| self.is_within(*home, key)).unwrap_or_else(|| {
            let home = self.rest.find(key);
            slot.inspect(|slot| slot.set(home));
            home
        });
        let found = self.search(home, key);
        let (Ok(at) | Err(at)) = found;
        self.looked_last.set((home, at as u32));
        (home, found)
    }

    fn search<Q>(&self, home: Home, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let chunk = self.chunk(home);
        if !Q::IS_SPREAD_EVENLY {
            return search(chunk, None, key);
        }
        // Both are read where the chunk was found. Its own entries lie elsewhere.
        let low = home.and_then(|place| self.rest.key(place));
        let next = home.map_or_else(|| self.rest.first(), |place| self.rest.after(place));
        let high = next.and_then(|next| self.rest.key(next));
        let low = low.or_else(|| chunk.first().map(|(key, _)| key));
        let high = high.or_else(|| chunk.last().map(|(key, _)| key));
        search(chunk, low.map(K::borrow).zip(high.map(K::borrow)), key)
    }

    /// Whether the key stands in this chunk, or belongs between two that do.
    fn is_within<Q>(&self, home: Home, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let chunk = match home {
            None => Some(&self.first),
            Some(place) => self.rest.get(place),
        };
        let ends = chunk.and_then(|chunk| chunk.first().zip(chunk.last()));
        ends.is_some_and(|((first, _), (last, _))| first.borrow() <= key && key <= last.borrow())
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

/// Is the key there still, or right after it, or does it belong before one of the two? Behind the last chunk there
/// is nothing that it could belong before.
fn look_again<K: Borrow<Q>, V, Q: Ord + ?Sized>(
    chunk: &Chunk<K, V>,
    at: usize,
    key: &Q,
    is_last: bool,
) -> Option<Result<usize, usize>> {
    match chunk.get(at)?.0.borrow().cmp(key) {
        Ordering::Equal => Some(Ok(at)),
        Ordering::Greater => {
            let (below, _) = chunk.get(at.checked_sub(1)?)?;
            (below.borrow() < key).then_some(Err(at))
        }
        Ordering::Less => match chunk.get(at + 1).map(|(next, _)| next.borrow().cmp(key)) {
            Some(Ordering::Equal) => Some(Ok(at + 1)),
            Some(Ordering::Greater) => Some(Err(at + 1)),
            Some(Ordering::Less) => None,
            None => is_last.then_some(Err(at + 1)),
        },
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

    use super::*;
    use crate::id::SessionId;

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
                if step % 16 == 0 {
                    check(&map, &model);
                    let start = Bound::Excluded(&asked);
                    assert!(map.from(start).eq(model.range((start, Bound::Unbounded))));
                }
            }
        }
    }

    #[test]
    fn it_is_one_where_places_are_guessed_whether_keys_are_random_or_not() {
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
    fn what_comes_in_order_fills_one_chunk_after_the_other() {
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
    fn a_place_that_is_gone_is_not_taken_for_the_first() {
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
            assert!(map.rest.is_empty());
            assert_eq!((map.len(), map.first.capacity()), (0, 0));
        }
    }
}
