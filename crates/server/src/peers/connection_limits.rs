//! How many connections the peer port takes, in all and of one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connections::counted_as;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimits {
    max: usize,
    per_address_max: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Counts until it is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection {
    limits: ConnectionLimits,
    address: IpAddr,
}

impl ConnectionLimits {
    pub(super) fn new(max: usize, per_address_max: usize) -> ConnectionLimits {
        ConnectionLimits { max, per_address_max, taken: Arc::default() }
    }

    /// None if there are too many, or too many of this address.
    pub(super) fn take(&self, address: IpAddr) -> Option<CountedConnection> {
        let address = counted_as(address);
        let mut taken = self.lock();
        let of_address = taken.by_address.get(&address).copied().unwrap_or_default();
        if taken.all >= self.max || of_address >= self.per_address_max {
            return None;
        }
        taken.all += 1;
        taken.by_address.insert(address, of_address + 1);
        Some(CountedConnection { limits: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut taken = self.limits.lock();
        taken.all = taken.all.saturating_sub(1);
        if let Some(of_address) = taken.by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_many_connections_gets_no_more_and_the_others_do() {
        let limits = ConnectionLimits::new(4, 2);
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        let mut first: Vec<CountedConnection> =
            (0..2).filter_map(|_| limits.take(address(1))).collect();
        assert_eq!(first.len(), 2);
        assert!(limits.take(address(1)).is_none());
        let second: Vec<CountedConnection> =
            (0..2).filter_map(|_| limits.take(address(2))).collect();
        assert_eq!(second.len(), 2);
        assert!(limits.take(address(3)).is_none(), "all are taken");
        first.pop();
        assert!(limits.take(address(3)).is_some());
        drop((first, second));
        assert!(limits.lock().by_address.is_empty() && limits.lock().all == 0);
    }
}
