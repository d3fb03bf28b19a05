//! How often callers may ask, by the quotas of the policy that is in force.
//!
//! Each node counts for itself, and each request counts at each node that admits it. With one group, the leader admits
//! all of them, so its count is that of the cluster. With several groups, each node that leads a group counts, so a
//! principal can get a multiple of its rate.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdfast_core::{Access, PrefixMap, Principal, Quota, QuotaSubject};
use holdfast_proto::failure::not_now;
use holdfast_proto::v1::{Failure, Reason};

/// A token bucket: so many requests a second on average, and a burst at once after a silence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucket {
    /// By then all requests so far would have come, had they kept to the rate.
    used_until: Duration,
}

impl TokenBucket {
    /// The bucket after one more request; or else the time after which there is room for it.
    pub fn after_one(
        self,
        now: Duration,
        per_second: u64,
        burst: u64,
    ) -> Result<TokenBucket, Duration> {
        let charged = self.charged(now, per_second);
        let ahead_max = Duration::from_nanos(each_ns(per_second).saturating_mul(burst.max(1)));
        match charged.used_until.saturating_sub(now).checked_sub(ahead_max) {
            Some(wait) if wait > Duration::ZERO => Err(wait),
            _ => Ok(charged),
        }
    }

    /// The bucket after one more request, whether there is room for it or not.
    fn charged(self, now: Duration, per_second: u64) -> TokenBucket {
        let used_until = self.used_until.max(now) + Duration::from_nanos(each_ns(per_second));
        TokenBucket { used_until }
    }
}

fn each_ns(per_second: u64) -> u64 {
    1_000_000_000 / per_second.max(1)
}

/// A quota's rate, and what of it is used.
#[derive(Clone, Copy, Debug)]
struct Rate {
    per_second: u64,
    burst: u64,
    bucket: TokenBucket,
}

impl Rate {
    fn after_one(&self, now: Duration) -> Result<TokenBucket, Duration> {
        self.bucket.after_one(now, self.per_second, self.burst)
    }
}

#[derive(Debug, Default)]
pub(crate) struct RateLimits {
    /// Without rates nothing is looked up.
    is_any: AtomicBool,
    rates: Mutex<Rates>,
}

#[derive(Debug, Default)]
struct Rates {
    principals: BTreeMap<Principal, Rate>,
    prefixes: PrefixMap<Rate>,
}

impl RateLimits {
    pub(crate) fn publish(&self, access: &Access) {
        let rates = access.quotas().iter().filter_map(|(subject, quota)| {
            let Quota { rate, burst, .. } = *quota;
            let per_second = rate?;
            let (burst, bucket) = (burst.unwrap_or(per_second), TokenBucket::default());
            Some((subject.clone(), Rate { per_second, burst, bucket }))
        });
        self.publish_rates(rates);
    }

    /// What is used of a quota stays used, unless its rate or its burst is another one now.
    fn publish_rates(&self, all: impl Iterator<Item = (QuotaSubject, Rate)>) {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = Rates::default();
        for (subject, mut rate) in all {
            let before = match &subject {
                QuotaSubject::Principal(principal) => rates.principals.get(principal),
                QuotaSubject::Prefix(prefix) => rates.prefixes.by_prefix().get(prefix),
            };
            let numbers = |rate: &Rate| (rate.per_second, rate.burst);
            if let Some(before) = before.filter(|before| numbers(before) == numbers(&rate)) {
                rate.bucket = before.bucket;
            }
            match subject {
                QuotaSubject::Principal(principal) => {
                    new.principals.insert(principal, rate);
                }
                QuotaSubject::Prefix(prefix) => {
                    new.prefixes.insert(prefix, rate);
                }
            }
        }
        let is_any = !new.principals.is_empty() || !new.prefixes.by_prefix().is_empty();
        *rates = new;
        self.is_any.store(is_any, Ordering::Release);
    }

    pub(crate) fn are_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Counts a request, unless one of the quotas that it is under has no room for it.
    pub(crate) fn take(
        &self,
        now: Duration,
        principal: Option<&Principal>,
        names: &[&str],
    ) -> Result<(), Failure> {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let Rates { principals, prefixes } = &mut *rates;
        if let Some((principal, rate)) = principal.and_then(|name| principals.get_key_value(name)) {
            rate.after_one(now).map_err(|wait| too_often(principal.as_str(), rate, wait))?;
        }
        for (prefix, rate) in names.iter().flat_map(|name| prefixes.covering(name)) {
            rate.after_one(now).map_err(|wait| too_often(&format!("{prefix}*"), rate, wait))?;
        }
        // All names of an acquire-all count, also those for which there is no room now.
        let count = |rate: &mut Rate| rate.bucket = rate.bucket.charged(now, rate.per_second);
        principal.and_then(|name| principals.get_mut(name)).into_iter().for_each(count);
        names.iter().for_each(|name| prefixes.change_covering(name, count));
        Ok(())
    }
}

fn too_often(subject: &str, rate: &Rate, wait: Duration) -> Failure {
    let retry_after_ms = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let words = format!(
        "the quota of {subject} is {} requests a second, and there were more; ask again in {retry_after_ms} ms, or ask an \
         administrator for more (holdfast access quota)",
        rate.per_second
    );
    Failure { retry_after_ms, ..not_now(Reason::RateLimited, words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How many of a thousand requests at that time find room.
    fn admitted(bucket: &mut TokenBucket, now: Duration, per_second: u64, burst: u64) -> usize {
        let mut one = || match bucket.after_one(now, per_second, burst) {
            Ok(after) => {
                *bucket = after;
                true
            }
            Err(_) => false,
        };
        (0..1_000).filter(|_| one()).count()
    }

    #[test]
    fn a_bucket_has_a_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::default();
        assert_eq!(admitted(&mut bucket, SECOND, 10, 25), 25);
        assert_eq!(admitted(&mut bucket, SECOND, 10, 25), 0);
        assert_eq!(admitted(&mut bucket, SECOND * 2, 10, 25), 10);
        assert_eq!(admitted(&mut bucket, SECOND * 100, 10, 25), 25, "no more is saved up");
    }

    #[test]
    fn a_request_that_waits_as_long_as_it_was_told_finds_room_and_not_earlier() {
        for (per_second, burst) in [(1, 1), (3, 2), (7, 100), (1_000_000_000, 1)] {
            let mut bucket = TokenBucket::default();
            let wait = loop {
                match bucket.after_one(SECOND, per_second, burst) {
                    Ok(after) => bucket = after,
                    Err(wait) => break wait,
                }
            };
            assert!(bucket.after_one(SECOND + wait, per_second, burst).is_ok());
            let earlier = SECOND + wait - Duration::from_nanos(1);
            assert!(bucket.after_one(earlier, per_second, burst).is_err());
        }
    }

    #[test]
    fn a_higher_rate_is_in_force_at_once() {
        let limits = RateLimits::default();
        let set = |per_second, burst| {
            let rate = Rate { per_second, burst, bucket: TokenBucket::default() };
            limits.publish_rates(std::iter::once((QuotaSubject::Prefix("a/".into()), rate)));
        };
        let admitted =
            || (0..5_000).filter(|_| limits.take(SECOND, None, &["a/x"]).is_ok()).count();
        set(1, 3_600);
        assert_eq!(admitted(), 3_600);
        set(1, 3_600);
        assert_eq!(admitted(), 0, "what is used stays used");
        set(100, 200);
        assert_eq!(admitted(), 200);
    }

    #[test]
    fn each_name_of_an_acquire_all_counts() {
        let limits = RateLimits::default();
        let rate = Rate { per_second: 10, burst: 20, bucket: TokenBucket::default() };
        limits.publish_rates(std::iter::once((QuotaSubject::Prefix("a/".into()), rate)));
        limits.take(SECOND, None, &["a/x"; 50]).unwrap();
        // It has used the burst, and what comes in the next three seconds.
        assert!(limits.take(SECOND * 4, None, &["a/x"]).is_err());
        assert!(limits.take(SECOND * 4 + SECOND / 10, None, &["a/x"]).is_ok());
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing_away() {
        let mut bucket = TokenBucket::default();
        assert_eq!(admitted(&mut bucket, SECOND * 9, 10, 5), 5);
        assert_eq!(admitted(&mut bucket, SECOND, 10, 5), 0);
    }
}
