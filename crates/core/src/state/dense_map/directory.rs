//! The directory of the chunks of a large map: a sorted list in pages, so that an insert moves few entries.
//!
//! Invariants: keys rise through a page and from one to the next; no page is empty.

use alloc::vec::Vec;
use core::borrow::Borrow;
use core::num::NonZeroU32;

use super::interpolation::{Key, search};

/// A page with more is cut in two.
const PAGE_MAX: usize = 128;

#[derive(Clone, Debug)]
pub(super) struct Directory<K, C> {
    pages: Vec<Page<K, C>>,
}

#[derive(Clone, Debug)]
struct Page<K, C> {
    /// Not above its first entry, and above the last entry of the page before.
    low: K,
    entries: Vec<(K, C)>,
}

/// The position of an entry, valid until the next insert or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryPosition {
    /// Counted from one, so that no place takes no more room than one.
    page: NonZeroU32,
    entry: u32,
}

impl EntryPosition {
    fn new(page: usize, entry: usize) -> EntryPosition {
        EntryPosition { page: NonZeroU32::MIN.saturating_add(page as u32), entry: entry as u32 }
    }

    fn page(self) -> usize {
        self.page.get() as usize - 1
    }

    fn entry(self) -> usize {
        self.entry as usize
    }
}

impl<K, C> Default for Directory<K, C> {
    fn default() -> Self {
        Directory { pages: Vec::new() }
    }
}

impl<K: Ord + Clone, C> Directory<K, C> {
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The last entry whose key is not above this one.
    pub(super) fn find<Q>(&self, key: &Q) -> Option<EntryPosition>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let page = self.pages.partition_point(|page| page.low.borrow() <= key).checked_sub(1)?;
        let Page { low, entries } = self.pages.get(page)?;
        let high = match self.pages.get(page + 1) {
            Some(next) => Some(&next.low),
            None => entries.last().map(|(last, _)| last),
        };
        match search(entries, high.map(|high| (low.borrow(), high.borrow())), key) {
            Ok(entry) => Some(EntryPosition::new(page, entry)),
            // Its first has gone since.
            Err(0) => self.before(EntryPosition::new(page, 0)),
            Err(above) => Some(EntryPosition::new(page, above - 1)),
        }
    }

    pub(super) fn get(&self, place: EntryPosition) -> Option<&C> {
        self.entry(place).map(|(_, content)| content)
    }

    pub(super) fn get_mut(&mut self, place: EntryPosition) -> Option<&mut C> {
        let page = self.pages.get_mut(place.page())?;
        page.entries.get_mut(place.entry()).map(|(_, content)| content)
    }

    pub(super) fn key(&self, place: EntryPosition) -> Option<&K> {
        self.entry(place).map(|(key, _)| key)
    }

    fn entry(&self, place: EntryPosition) -> Option<&(K, C)> {
        self.pages.get(place.page())?.entries.get(place.entry())
    }

    pub(super) fn first(&self) -> Option<EntryPosition> {
        (!self.is_empty()).then(|| EntryPosition::new(0, 0))
    }

    pub(super) fn last(&self) -> Option<&C> {
        self.pages.last()?.entries.last().map(|(_, content)| content)
    }

    pub(super) fn last_place(&self) -> Option<EntryPosition> {
        let page = self.pages.len().checked_sub(1)?;
        Some(EntryPosition::new(page, self.pages.get(page)?.entries.len().checked_sub(1)?))
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut C> {
        self.pages.last_mut()?.entries.last_mut().map(|(_, content)| content)
    }

    pub(super) fn before(&self, at: EntryPosition) -> Option<EntryPosition> {
        if at.entry > 0 {
            return Some(EntryPosition { entry: at.entry - 1, ..at });
        }
        let page = at.page().checked_sub(1)?;
        Some(EntryPosition::new(page, self.pages.get(page)?.entries.len().checked_sub(1)?))
    }

    pub(super) fn after(&self, at: EntryPosition) -> Option<EntryPosition> {
        let next = EntryPosition { entry: at.entry + 1, ..at };
        if self.entry(next).is_some() {
            return Some(next);
        }
        let next = EntryPosition::new(at.page() + 1, 0);
        self.entry(next).map(|_| next)
    }

    /// In order, from there on.
    pub(super) fn from(&self, start: Option<EntryPosition>) -> impl Iterator<Item = &C> {
        let (page, skipped) = start.map_or((self.pages.len(), 0), |at| (at.page(), at.entry()));
        let pages = self.pages.get(page..).unwrap_or_default();
        pages.iter().flat_map(|page| &page.entries).skip(skipped).map(|(_, content)| content)
    }

    /// The key must be new.
    pub(super) fn insert(&mut self, key: K, content: C) {
        let above = self.pages.partition_point(|page| page.low <= key);
        let Some(page) = self.pages.get_mut(above.saturating_sub(1)) else {
            self.pages.push(Page { low: key.clone(), entries: Vec::from([(key, content)]) });
            return;
        };
        if key < page.low {
            page.low = key.clone();
        }
        let at = page.entries.partition_point(|(other, _)| *other < key);
        page.entries.insert(at, (key, content));
        if page.entries.len() > PAGE_MAX {
            let upper = page.entries.split_off(PAGE_MAX / 2);
            if let Some((low, _)) = upper.first() {
                let low = low.clone();
                self.pages.insert(above.max(1), Page { low, entries: upper });
            }
        }
    }

    pub(super) fn remove(&mut self, place: EntryPosition) -> Option<(K, C)> {
        let page = self.pages.get_mut(place.page())?;
        if place.entry() >= page.entries.len() {
            return None;
        }
        let entry = page.entries.remove(place.entry());
        if page.entries.is_empty() {
            self.pages.remove(place.page());
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_directory_agrees_with_a_sorted_map_over_inserts_and_removals() {
        let (mut directory, mut model) = (Directory::default(), BTreeMap::new());
        let mut number = 7_u64;
        let mut next = || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (number >> 33) % 3_000
        };
        for step in 0..20_000_u64 {
            let key = next();
            if next() * 20_000 / 3_000 >= step {
                if model.insert(key, step).is_none() {
                    directory.insert(key, step);
                } else if let Some(at) = directory.find(&key) {
                    *directory.get_mut(at).unwrap() = step;
                }
            } else if let Some(at) = directory.find(&key) {
                let lower = model.range(..=key).next_back().map(|(key, _)| *key).unwrap();
                assert_eq!(directory.remove(at), model.remove_entry(&lower));
            }
            let asked = next();
            let found = directory.find(&asked);
            let below = model.range(..=asked).next_back().map(|(_, step)| step);
            assert_eq!(found.and_then(|at| directory.get(at)), below);
            if let Some(at) = found {
                let above = model.range(asked + 1..).next().map(|(_, step)| step);
                assert_eq!(directory.after(at).and_then(|at| directory.get(at)), above);
                let before = directory.before(at);
                assert!(before.is_none_or(|before| directory.after(before) == Some(at)));
                assert!(
                    directory
                        .from(Some(at))
                        .skip(1)
                        .eq(model.range(asked + 1..).map(|(_, step)| step))
                );
            }
            assert_eq!(directory.last(), model.last_key_value().map(|(_, step)| step));
        }
        assert!(directory.from(directory.first()).eq(model.values()));
        while let Some(at) = directory.first() {
            assert_eq!(directory.remove(at), model.pop_first());
        }
        assert!(directory.is_empty() && model.is_empty());
    }
}
