//! How long everything took, noted by many clients at once.
//!
//! Clients share a few histograms: one for each of a thousand would push each other out of the processor's caches, and
//! one for all would make them wait for each other.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Outcome;
use crate::window::Window;

const SHARDS: usize = 16;
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 600_000_000_000;
/// Three digits of each figure are right.
const DIGITS: u8 = 3;

#[derive(Debug)]
pub struct Notes {
    window: Window,
    shards: Vec<Mutex<Histogram<u64>>>,
}

/// In microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    pub count: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

impl Notes {
    pub fn new(window: Window) -> Outcome<Notes> {
        let shards = (0..SHARDS)
            .map(|_| Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS).map(Mutex::new))
            .collect::<Result<_, _>>()?;
        Ok(Notes { window, shards })
    }

    /// What was answered outside of the window is not counted.
    pub fn note(&self, client: usize, asked: Instant, answered: Instant) {
        if self.window.counts(answered) {
            let shard = &self.shards[client % SHARDS];
            let took = u64::try_from((answered - asked).as_nanos()).unwrap_or(u64::MAX);
            shard.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(took);
        }
    }

    pub fn count(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    pub fn latency(&self) -> Outcome<Latency> {
        let mut all = Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS)?;
        for shard in &self.shards {
            all.add(&*lock(shard))?;
        }
        let us = |ns: u64| Duration::from_nanos(ns).as_secs_f64() * 1e6;
        let at = |quantile| us(all.value_at_quantile(quantile));
        Ok(Latency {
            count: all.len(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(all.max()),
        })
    }
}

fn lock(shard: &Mutex<Histogram<u64>>) -> std::sync::MutexGuard<'_, Histogram<u64>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Length;

    #[test]
    fn what_is_answered_before_or_after_the_window_is_not_counted() {
        let length = Length { warm_up: Duration::from_secs(1), measured: Duration::from_secs(2) };
        let window = Window::beginning_now(length);
        let notes = Notes::new(window).unwrap();
        let asked = window.from - Duration::from_millis(500);
        for answered_ms in [499, 500, 700, 2_499, 2_500] {
            notes.note(answered_ms, asked, asked + Duration::from_millis(answered_ms as u64));
        }
        let latency = notes.latency().unwrap();
        assert_eq!(latency.count, 3);
        assert!((latency.p50_us - 700_000.0).abs() < 700.0, "{latency:?}");
        assert!((latency.max_us - 2_499_000.0).abs() < 2_500.0, "{latency:?}");
    }
}
