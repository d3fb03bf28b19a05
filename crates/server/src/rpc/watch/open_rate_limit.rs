//! How fast one address may open watches. To open one costs many times what it costs to keep it, so a client that opens
//! and drops them in turn would take a node's time from all others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_proto::failure::not_now;
use holdfast_proto::v1::{Failure, Reason};
use holdfast_service::Caller;

use crate::connections::counted_as;

/// Once the watches of a burst are open, one address opens so many in a second.
const PER_SECOND: u32 = 1_000;
/// At once, after a silence. A program that loses its node opens all of its watches again.
const BURST: u32 = 20_000;

/// That opened some lately. If there are more, all further ones count as one.
const ADDRESSES_MAX: usize = 16_384;

/// Of one node.
#[derive(Debug, Default)]
pub(in crate::rpc) struct OpenRateLimit {
    openings: Mutex<Openings>,
}

#[derive(Debug, Default)]
struct Openings {
    /// For each address, up to when it would have opened what it has, had it kept to the steady rate.
    used_until: BTreeMap<Option<IpAddr>, Instant>,
    /// Until then no address can be forgotten. So a crowd of addresses does not cause a search for each watch.
    full_until: Option<Instant>,
}

impl OpenRateLimit {
    /// Counts a watch that this caller opens, or says when it may.
    pub(in crate::rpc) fn begin(&self, caller: &Caller) -> Result<(), Failure> {
        match caller.address {
            Some(address) => self.begin_at(counted_as(address), Instant::now()).map_err(too_fast),
            // A node of its own accord.
            None => Ok(()),
        }
    }

    /// Gives after what time it may, if not now.
    fn begin_at(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        const EACH_NS: u64 = 1_000_000_000 / PER_SECOND as u64;
        const EACH: Duration = Duration::from_nanos(EACH_NS);
        const AHEAD_MAX: Duration = Duration::from_nanos(EACH_NS * BURST as u64);
        let mut openings = self.openings.lock().unwrap_or_else(PoisonError::into_inner);
        let is_remembered = openings.used_until.contains_key(&Some(address));
        let key = (is_remembered || openings.has_room(now)).then_some(address);
        let used = openings.used_until.entry(key).or_insert(now);
        let then = (*used).max(now) + EACH;
        let ahead = then.saturating_duration_since(now);
        if ahead > AHEAD_MAX {
            return Err(ahead.saturating_sub(AHEAD_MAX));
        }
        *used = then;
        Ok(())
    }
}

impl Openings {
    /// Whether one more address can be remembered. Forgets those that have kept to the steady rate since.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.used_until.len() < ADDRESSES_MAX {
            return true;
        }
        if self.full_until.is_some_and(|full_until| now < full_until) {
            return false;
        }
        self.used_until.retain(|_, used_until| *used_until > now);
        let has_room = self.used_until.len() < ADDRESSES_MAX;
        // While there is no room, no address is added, and the times of those that are there only rise.
        self.full_until = if has_room { None } else { self.used_until.values().min().copied() };
        has_room
    }
}

fn too_fast(wait: Duration) -> Failure {
    let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    let words = format!(
        "this address opens more than {PER_SECOND} watches a second; open this one again in {retry_after_ms} ms, and \
         keep those that are open"
    );
    Failure { retry_after_ms, ..not_now(Reason::Overloaded, &words) }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use holdfast_service::Protocol;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    #[test]
    fn an_address_opens_a_burst_and_then_so_many_a_second() {
        let (openings, begin) = (&OpenRateLimit::default(), Instant::now());
        let opened =
            |now| (0..2 * BURST).filter(move |_| openings.begin_at(address(1), now).is_ok());
        assert_eq!(opened(begin).count(), BURST as usize);
        assert!(openings.begin_at(address(2), begin).is_ok(), "another address");
        let second = Duration::from_secs(1);
        assert_eq!(opened(begin + second).count(), PER_SECOND as usize);
        assert_eq!(opened(begin + second).count(), 0);
        assert_eq!(opened(begin + second * (BURST / PER_SECOND + 9)).count(), BURST as usize);
    }

    #[test]
    fn a_refused_watch_says_when_to_retry() {
        let (openings, now) = (OpenRateLimit::default(), Instant::now());
        let caller = Caller::client(Protocol::Grpc, Some(address(1)));
        let wait = loop {
            if let Err(wait) = openings.begin_at(address(1), now) {
                break wait;
            }
        };
        assert!(openings.begin_at(address(1), now + wait).is_ok());
        let failure = (0..2 * BURST).find_map(|_| openings.begin(&caller).err()).unwrap();
        assert_eq!(failure.reason(), Reason::Overloaded);
        assert!(failure.retryable && !failure.may_have_happened, "{failure:?}");
        assert!(failure.message.contains("again in"), "{}", failure.message);
        assert!(openings.begin(&Caller::node(1)).is_ok(), "the node itself");
    }

    #[test]
    fn addresses_that_are_too_many_to_remember_share_one_allowance() {
        let (openings, now) = (OpenRateLimit::default(), Instant::now());
        let many = ADDRESSES_MAX as u32 + 2 * BURST;
        let opened = (0..many).filter(|number| openings.begin_at(address(*number), now).is_ok());
        assert_eq!(opened.count(), ADDRESSES_MAX + BURST as usize);
        assert!(openings.openings.lock().unwrap().used_until.len() <= ADDRESSES_MAX + 1);
        let later = now + Duration::from_secs(60);
        assert!(openings.begin_at(address(many), later).is_ok());
        assert_eq!(
            openings.openings.lock().unwrap().used_until.len(),
            1,
            "the others are forgotten"
        );
    }
}
