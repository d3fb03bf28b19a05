//! How often something happens, over the last seconds.

use std::collections::{BTreeMap, VecDeque};

use crate::live::board::Millis;

const WINDOW_MS: Millis = 10_000;
const BUCKET_MS: Millis = 1_000;
/// Names that are counted in one second; more of them are not told apart.
const NAMES_MAX: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct Rates {
    buckets: VecDeque<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    start: Millis,
    total: u64,
    by_name: BTreeMap<String, u64>,
}

impl Rates {
    pub(super) fn count(&mut self, name: &str, now: Millis) {
        let start = now - now % BUCKET_MS;
        if self.buckets.back().is_none_or(|bucket| bucket.start != start) {
            self.buckets.push_back(Bucket { start, total: 0, by_name: BTreeMap::new() });
        }
        self.forget_old(now);
        let Some(bucket) = self.buckets.back_mut() else { return };
        bucket.total += 1;
        let has_room = bucket.by_name.len() < NAMES_MAX;
        match bucket.by_name.get_mut(name) {
            Some(count) => *count += 1,
            None if has_room => drop(bucket.by_name.insert(name.to_owned(), 1)),
            None => {}
        }
    }

    pub(super) fn per_second(&mut self, now: Millis) -> f64 {
        self.forget_old(now);
        let total: u64 = self.buckets.iter().map(|bucket| bucket.total).sum();
        total as f64 / Self::seconds(now)
    }

    /// The busiest first; of equally busy ones, by name.
    pub(super) fn busiest(&mut self, now: Millis, max: usize) -> Vec<(String, f64)> {
        self.forget_old(now);
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, count) in self.buckets.iter().flat_map(|bucket| &bucket.by_name) {
            *sums.entry(name).or_default() += count;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let seconds = Self::seconds(now);
        let busiest = sums.into_iter().take(max);
        busiest.map(|(name, count)| (name.to_owned(), count as f64 / seconds)).collect()
    }

    /// Who has counted for two seconds only must not divide by ten. Counting begins at time 0.
    fn seconds(now: Millis) -> f64 {
        let counted = now.clamp(BUCKET_MS, WINDOW_MS);
        counted as f64 / 1_000.0
    }

    fn forget_old(&mut self, now: Millis) {
        let is_old = |bucket: &Bucket| bucket.start + WINDOW_MS < now;
        while self.buckets.front().is_some_and(is_old) {
            self.buckets.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_of_the_last_ten_seconds_come_first() {
        let mut rates = Rates::default();
        for at in (0..20_000).step_by(100) {
            rates.count("often", at);
            if at < 5_000 {
                (0..10).for_each(|_| rates.count("long ago", at));
            }
        }
        rates.count("seldom", 19_000);
        let busiest = rates.busiest(20_000, 10);
        assert_eq!(busiest.len(), 2, "{busiest:?}");
        assert_eq!(busiest[0].0, "often");
        assert!((9.0..=11.1).contains(&busiest[0].1), "{busiest:?}");
        assert_eq!(rates.busiest(20_000, 1).len(), 1);
        assert!(rates.per_second(60_000) == 0.0);
    }
}
