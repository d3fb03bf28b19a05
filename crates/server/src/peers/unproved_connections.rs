//! Connections to the peer port that have not said yet what they are. A caller that says nothing must not keep nodes out.
//!
//! There is a limit in all, and one for each address. A connection beyond a limit is taken, and the oldest one under that
//! limit is closed instead.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::connections::counted_as;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct UnprovedConnections {
    max: usize,
    per_address_max: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// The oldest first. `add` removes the oldest when a limit is reached. That drops its sender, and the task that serves
    /// the connection sees the closed channel and closes the connection.
    by_age: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
}

/// Counts until it is dropped, or taken away.
#[derive(Debug)]
pub(super) struct UnprovedPlace {
    connections: UnprovedConnections,
    number: u64,
    taken_away: oneshot::Receiver<()>,
}

impl UnprovedConnections {
    pub(super) fn new(max: usize, per_address_max: usize) -> UnprovedConnections {
        UnprovedConnections { max, per_address_max, state: Arc::default() }
    }

    pub(super) fn add(&self, address: IpAddr) -> UnprovedPlace {
        let address = counted_as(address);
        let mut state = self.lock();
        let of_address = state.by_address.get(&address);
        let too_many = of_address.filter(|numbers| numbers.len() >= self.per_address_max);
        let oldest = match too_many {
            Some(numbers) => numbers.first().copied(),
            None if state.by_age.len() >= self.max => state.by_age.keys().next().copied(),
            None => None,
        };
        if let Some(oldest) = oldest {
            state.remove(oldest);
        }
        let number = state.next;
        state.next += 1;
        let (place, taken_away) = oneshot::channel();
        state.by_age.insert(number, (address, place));
        state.by_address.entry(address).or_default().insert(number);
        drop(state);
        UnprovedPlace { connections: self.clone(), number, taken_away }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, number: u64) {
        let Some((address, _)) = self.by_age.remove(&number) else { return };
        if let Some(numbers) = self.by_address.get_mut(&address) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }
}

impl UnprovedPlace {
    /// Returns when a newer connection has taken the place.
    pub(super) async fn taken_away(&mut self) {
        let _ = (&mut self.taken_away).await;
    }
}

impl Drop for UnprovedPlace {
    fn drop(&mut self) {
        self.connections.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn is_taken_away(place: &mut UnprovedPlace) -> bool {
        place.taken_away.try_recv() == Err(TryRecvError::Closed)
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn the_oldest_connection_of_an_address_makes_room_for_its_next() {
        let connections = UnprovedConnections::new(10, 2);
        let mut other = connections.add(address(9));
        let mut places: Vec<UnprovedPlace> = (0..3).map(|_| connections.add(address(1))).collect();
        let taken: Vec<bool> = places.iter_mut().map(is_taken_away).collect();
        assert_eq!(taken, [true, false, false]);
        assert!(!is_taken_away(&mut other));
    }

    #[test]
    fn a_new_address_is_taken_however_many_connections_say_nothing() {
        let connections = UnprovedConnections::new(8, 2);
        let mut silent: Vec<UnprovedPlace> =
            (0..8).map(|number| connections.add(address(number / 2))).collect();
        let mut node = connections.add(address(99));
        assert!(!is_taken_away(&mut node));
        let taken: Vec<bool> = silent.iter_mut().map(is_taken_away).collect();
        assert_eq!(taken, [true, false, false, false, false, false, false, false]);
        drop(node);
        let mut next = connections.add(address(1));
        assert!(!is_taken_away(&mut next));
        drop((silent, next));
        assert!(connections.lock().by_age.is_empty() && connections.lock().by_address.is_empty());
    }
}
