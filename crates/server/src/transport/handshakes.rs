//! In which order clients are answered that begin a handshake. An answer costs processor time before its client has proved
//! anything. So a few addresses have their turn at one moment, each with a few clients; the others wait. An address with many
//! of them waits for itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

use crate::connections::counted_as;

const LOGGED_EVERY: Duration = Duration::from_secs(1);
const AT_ONCE_MAX: usize = 64;
const AT_ONCE_PER_ADDRESS_MAX: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Handshakes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    all: Arc<Semaphore>,
    addresses: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    /// When the last refusal was logged, and how many were not since then.
    refusals: Mutex<(Option<Instant>, u64)>,
}

/// A client that may be answered now.
#[derive(Debug)]
pub(super) struct Turn {
    _of_all: Option<OwnedSemaphorePermit>,
    of_address: Option<OwnedSemaphorePermit>,
    address: IpAddr,
    handshakes: Handshakes,
}

impl Default for Handshakes {
    fn default() -> Handshakes {
        let all = Arc::new(Semaphore::new(AT_ONCE_MAX));
        Handshakes(Arc::new(Shared {
            all,
            addresses: Mutex::default(),
            refusals: Mutex::default(),
        }))
    }
}

impl Handshakes {
    /// Waits for its turn. Connections that wait are idle, and have the time of idle ones.
    pub(super) async fn begin(&self, address: IpAddr) -> Turn {
        let address = counted_as(address);
        let of_address = {
            let mut addresses = self.lock();
            let new = || Arc::new(Semaphore::new(AT_ONCE_PER_ADDRESS_MAX));
            Arc::clone(addresses.entry(address).or_insert_with(new))
        };
        // Made first: the entry goes again also if this is given up.
        let mut turn = Turn { _of_all: None, of_address: None, address, handshakes: self.clone() };
        // None of the semaphores is ever closed.
        turn.of_address = of_address.acquire_owned().await.ok();
        turn._of_all = Arc::clone(&self.0.all).acquire_owned().await.ok();
        // What is ready besides goes first. Without this, one client's work would follow the other's, however many wait.
        yield_now().await;
        turn
    }

    /// Logs why a connection is refused. Clients that come again and again do not fill the log.
    pub(super) fn note_refusal(&self, address: IpAddr, why: &str) {
        let mut refusals = self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let (logged_at, not_logged) = &mut *refusals;
        if logged_at.is_some_and(|at| at.elapsed() < LOGGED_EVERY) {
            *not_logged += 1;
            return tracing::debug!(%address, "refused a connection: {why}");
        }
        *logged_at = Some(Instant::now());
        let more = std::mem::take(not_logged);
        tracing::warn!(%address, not_logged = more, "refused a connection: {why}");
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Semaphore>>> {
        self.0.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.of_address = None;
        let mut addresses = self.handshakes.lock();
        // One more is with each handshake of the address that waits or is under way.
        if addresses.get(&self.address).is_some_and(|of| Arc::strong_count(of) == 1) {
            addresses.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::timeout;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn an_address_with_many_handshakes_waits_and_the_others_do_not() {
        let handshakes = Handshakes::default();
        let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE_PER_ADDRESS_MAX {
            turns.push(handshakes.begin(address(1)).await);
        }
        assert!(timeout(MOMENT, handshakes.begin(address(1))).await.is_err());
        let other = handshakes.begin(address(2)).await;
        turns.pop();
        turns.push(handshakes.begin(address(1)).await);
        drop((other, turns));
        assert!(handshakes.lock().is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn all_addresses_together_have_a_limit() {
        let handshakes = Handshakes::default();
        let mut turns = Vec::new();
        for number in 0..AT_ONCE_MAX {
            let address =
                Ipv4Addr::new(192, 0, 2, u8::try_from(number / AT_ONCE_PER_ADDRESS_MAX).unwrap());
            turns.push(handshakes.begin(IpAddr::V4(address)).await);
        }
        let late = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 200));
        assert!(timeout(MOMENT, handshakes.begin(late)).await.is_err());
        turns.pop();
        handshakes.begin(late).await;
    }
}
