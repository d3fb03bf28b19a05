//! A histogram with one writer: how many values were at most so large.

use std::time::Duration;

use super::number::Tally;

/// Buckets are counted one by one, and summed up when they are shown.
#[derive(Debug)]
pub(crate) struct Distribution {
    /// Upper bounds, rising; what is above the last has a bucket of its own.
    bounds: &'static [u64],
    buckets: Box<[Tally]>,
    sum: Tally,
    /// What a value is divided by when it is shown.
    scale: f64,
}

impl Distribution {
    /// Of times, shown in seconds.
    pub(super) fn of_micros(bounds: &'static [u64]) -> Distribution {
        Distribution::new(bounds, 1e6)
    }

    pub(super) fn of_counts(bounds: &'static [u64]) -> Distribution {
        Distribution::new(bounds, 1.0)
    }

    fn new(bounds: &'static [u64], scale: f64) -> Distribution {
        let buckets = (0..=bounds.len()).map(|_| Tally::default()).collect();
        Distribution { bounds, buckets, sum: Tally::default(), scale }
    }

    pub(crate) fn record(&self, value: u64) {
        let at = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        if let Some(bucket) = self.buckets.get(at) {
            bucket.add(1);
        }
        self.sum.add(value);
    }

    pub(crate) fn record_time(&self, time: Duration) {
        self.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// The bounds as they are shown, each with how many values were in its bucket. The last bound is infinite: the
    /// encoder writes it as `+Inf`, without which Prometheus computes no quantile.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds.iter().map(|bound| *bound as f64 / self.scale);
        let counts = self.buckets.iter().map(Tally::get);
        bounds.chain([f64::INFINITY]).zip(counts).collect()
    }

    pub(super) fn sum(&self) -> f64 {
        self.sum.get() as f64 / self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_first_bucket_that_is_large_enough() {
        let distribution = Distribution::of_micros(&[1_000, 1_000_000]);
        for micros in [0, 1_000, 1_001, 5_000_000] {
            distribution.record_time(Duration::from_micros(micros));
        }
        assert_eq!(distribution.buckets(), [(0.001, 2), (1.0, 1), (f64::INFINITY, 1)]);
        assert!((distribution.sum() - 5.002_001).abs() < 1e-9);
    }
}
