//! Where a key is: ways to find out, those first that cost least.
//!
//! A command looks at the same key several times, so the map remembers where it looked last, and looks there first. What it
//! remembers is checked against the entries that stand there, and need not be kept up to date. How it goes on from there
//! depends on the [`Nature`] of its keys.

use core::borrow::Borrow;

use super::guess::{Key, Nature, search};
use super::{DenseMap, Home, Spot};

impl<K: Key + Clone, V> DenseMap<K, V> {
    /// Where this key is; if it is nowhere, where it belongs.
    #[inline]
    pub(super) fn look<Q>(&self, key: &Q) -> Result<Spot, Spot>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        match self.look_again(key) {
            Some(spot) => Ok(spot),
            None => self.look_elsewhere(key),
        }
    }

    #[inline(never)]
    fn look_elsewhere<Q>(&self, key: &Q) -> Result<Spot, Spot>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        match self.look_behind(key) {
            Some(spot) => Err(spot),
            None => self.look_everywhere(key),
        }
    }

    /// The same, for one that is to be added: mostly it was looked for just before, and not found.
    pub(super) fn look_to_add(&self, key: &K) -> Result<Spot, Spot> {
        match self.look_between(key) {
            Some(spot) => Err(spot),
            None => self.look(key),
        }
    }

    /// If it is where one looked last.
    #[inline]
    fn look_again<Q>(&self, key: &Q) -> Option<Spot>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let spot = self.looked_last.get();
        let (there, _) = self.chunk_at(spot.home)?.get(spot.at as usize)?;
        (there.borrow() == key).then_some(spot)
    }

    /// If it belongs where one looked last, and found another.
    fn look_between(&self, key: &K) -> Option<Spot> {
        let spot = self.looked_last.get();
        let chunk = self.chunk_at(spot.home)?;
        let (above, _) = chunk.get(spot.at as usize)?;
        let (below, _) = chunk.get((spot.at as usize).checked_sub(1)?)?;
        (below < key && key < above).then_some(spot)
    }

    /// If it belongs behind all others, as what rises mostly does when it comes.
    fn look_behind<Q>(&self, key: &Q) -> Option<Spot>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        if Q::NATURE != Nature::Rising {
            return None;
        }
        let home = self.rest.last_place();
        let chunk = self.chunk(home);
        let is_above = chunk.last().is_none_or(|(last, _)| last.borrow() < key);
        is_above.then_some(Spot { home, at: chunk.len() as u32 })
    }

    fn look_everywhere<Q>(&self, key: &Q) -> Result<Spot, Spot>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let slot = self.hints.as_ref().map(|hints| hints.slot(key));
        if let Some(home) = slot.as_ref().and_then(|slot| slot.get())
            && let Some(chunk) = self.chunk_at(home)
        {
            let found = search(chunk, None, key);
            // It is one of those that stand there, or belongs between two of them.
            if found.is_ok() || found.is_err_and(|at| 0 < at && at < chunk.len()) {
                return self.looked(home, found);
            }
        }
        let home = self.rest.find(key);
        slot.inspect(|slot| slot.set(home));
        self.looked(home, self.search(home, key))
    }

    /// Remembers it for the next time.
    fn looked(&self, home: Home, found: Result<usize, usize>) -> Result<Spot, Spot> {
        let spot = |at| Spot { home, at: at as u32 };
        let (Ok(at) | Err(at)) = found;
        self.looked_last.set(spot(at));
        found.map(spot).map_err(spot)
    }

    fn search<Q>(&self, home: Home, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let chunk = self.chunk(home);
        if Q::NATURE != Nature::Random {
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
