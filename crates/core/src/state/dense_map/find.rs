//! Where a key is. A command asks for the same key several times, so the map remembers where it found the last one, and
//! looks there first. What it remembers is checked against the entries that stand there, and need not be kept up to
//! date.

use core::borrow::Borrow;

use super::interpolation::{Key, search};
use super::{DenseMap, Home, Spot};

impl<K: Key + Clone, V> DenseMap<K, V> {
    /// Where this key is; if it is nowhere, where it belongs.
    #[inline]
    pub(super) fn find<Q>(&self, key: &Q) -> Result<Spot, Spot>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        match self.find_again(key) {
            Some(spot) => Ok(spot),
            None => self.find_anywhere(key),
        }
    }

    /// The same, for one that is to be added: mostly it was asked for just before, and not found.
    pub(super) fn find_to_add(&self, key: &K) -> Result<Spot, Spot> {
        match self.find_between(key) {
            Some(spot) => Err(spot),
            None => self.find(key),
        }
    }

    /// If it is where the last one was found.
    #[inline]
    fn find_again<Q>(&self, key: &Q) -> Option<Spot>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let spot = self.found_last.get();
        let (there, _) = self.chunk_at(spot.home)?.get(spot.at as usize)?;
        (there.borrow() == key).then_some(spot)
    }

    /// If it belongs where the last one would have been.
    fn find_between(&self, key: &K) -> Option<Spot> {
        let spot = self.found_last.get();
        let chunk = self.chunk_at(spot.home)?;
        let (above, _) = chunk.get(spot.at as usize)?;
        let (below, _) = chunk.get((spot.at as usize).checked_sub(1)?)?;
        (below < key && key < above).then_some(spot)
    }

    #[inline(never)]
    fn find_anywhere<Q>(&self, key: &Q) -> Result<Spot, Spot>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let home = self.rest.find(key);
        let found = self.search(home, key);
        let spot = |at| Spot { home, at: at as u32 };
        let (Ok(at) | Err(at)) = found;
        self.found_last.set(spot(at));
        found.map(spot).map_err(spot)
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
}
