//! Interpolation search within a chunk.
//!
//! Session ids are random, so those of one chunk are mostly spread evenly. The position of an id follows, within a few
//! entries, from its distance to the lowest and the highest one. Reading there touches two or three neighbouring cache
//! lines. A binary search touches as many cache lines that are far apart, one after the other, and the sessions do not
//! fit into a cache. Without interpolation, a heartbeat among 100,000 sessions takes the table a quarter more time.
//!
//! The estimate can be wrong. Then the search walks through the entries, and a chunk has few.

use core::borrow::Borrow;

use crate::model::id::{RequestId, SessionId};
use crate::model::name::LockName;
use crate::model::time::LogicalTime;

/// A key of the map.
pub(crate) trait Key: Ord {
    /// Keys are evenly distributed, so interpolation is faster than binary search.
    const IS_SPREAD_EVENLY: bool = false;

    /// About how many of so many keys from `low` to `high` are below this one.
    fn interpolate(&self, _low: &Self, _high: &Self, len: usize) -> usize {
        len / 2
    }
}

impl Key for LockName {}

impl Key for str {}

impl Key for RequestId {}

impl Key for (LogicalTime, SessionId) {}

impl Key for SessionId {
    const IS_SPREAD_EVENLY: bool = true;

    fn interpolate(&self, low: &SessionId, high: &SessionId, len: usize) -> usize {
        let (offset, span) = (self.0.saturating_sub(low.0), high.0.saturating_sub(low.0));
        // So many digits that the product below has room.
        let cut = (u128::BITS - span.leading_zeros()).saturating_sub(u32::BITS);
        let (offset, span) = ((offset.min(span) >> cut) as u64, (span >> cut) as u64);
        (offset * len as u64 / (span + 1)) as usize
    }
}

/// As `binary_search` does. The ends are about those of the entries.
pub(super) fn search<K, V, Q>(
    entries: &[(K, V)],
    ends: Option<(&Q, &Q)>,
    key: &Q,
) -> Result<usize, usize>
where
    K: Borrow<Q>,
    Q: Key + ?Sized,
{
    let Some((low, high)) = ends.filter(|_| Q::IS_SPREAD_EVENLY) else {
        return entries.binary_search_by(|(other, _)| other.borrow().cmp(key));
    };
    let expected = key.interpolate(low, high, entries.len()).min(entries.len());
    let (before, after) = entries.split_at(expected);
    let too_far = before.iter().rev().take_while(|(other, _)| other.borrow() >= key).count();
    let at = if too_far > 0 {
        expected - too_far
    } else {
        expected + after.iter().take_while(|(other, _)| other.borrow() < key).count()
    };
    match entries.get(at) {
        Some((found, _)) if found.borrow() == key => Ok(at),
        _ => Err(at),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn entries(ids: impl Iterator<Item = u128>) -> Vec<(SessionId, ())> {
        ids.map(|id| (SessionId(id), ())).collect()
    }

    #[test]
    fn interpolation_finds_what_binary_search_finds_for_any_key_distribution() {
        let even = entries((0..90).map(|step| u128::MAX / 90 * step));
        let lopsided = entries((0..90).map(|step| 1 << step));
        let close = entries((0..90).map(|step| u128::MAX - 180 + 2 * step));
        let one = entries([7].into_iter());
        for entries in [even, lopsided, close, one, Vec::new()] {
            let asked = entries.iter().map(|(id, ())| id.0);
            for id in asked.flat_map(|id| [id.saturating_sub(1), id, id.saturating_add(1)]) {
                let key = SessionId(id);
                let halved = entries.binary_search_by_key(&key, |(other, ())| *other);
                let whole = (SessionId(0), SessionId(u128::MAX));
                let nothing = (key, key);
                let upside_down = (whole.1, whole.0);
                let true_ends = (entries[0].0, entries[entries.len() - 1].0);
                for (low, high) in [true_ends, whole, nothing, upside_down] {
                    assert_eq!(search(&entries, Some((&low, &high)), &key), halved);
                }
                assert_eq!(search(&entries, None, &key), halved);
            }
        }
    }

    #[test]
    fn interpolation_lands_within_a_few_entries_for_random_ids() {
        let mut id = 1_u128;
        let mut ids: Vec<u128> = (0..64)
            .map(|_| {
                id = id.wrapping_mul(0xda94_2042_e4dd_58b5_2360_ed05_1fc6_5da5).wrapping_add(1);
                id
            })
            .collect();
        ids.sort_unstable();
        let (low, high) = (SessionId(ids[0]), SessionId(ids[63]));
        let off =
            |(at, id): (usize, &u128)| SessionId(*id).interpolate(&low, &high, 64).abs_diff(at);
        let farthest = ids.iter().enumerate().map(off).max();
        assert!(farthest.is_some_and(|farthest| farthest < 12), "{farthest:?}");
    }
}
