//! The driver sleeps on its inbox, on the wires from its peers and on the connections that were lent to it at once. Whoever
//! puts something into the inbox rings the bell, which costs a system call only if the driver does sleep.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread;
use std::time::Duration;

use mio::{Events, Poll, Registry, Token, Waker};

const BELL: Token = Token(0);
/// A wire to some peer has room again, or has ended.
pub(crate) const ROOM: Token = Token(1);
const EVENTS_PER_LOOK_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Bell {
    is_asleep: AtomicBool,
    waker: Waker,
    registry: Registry,
}

/// Something happened on a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketNews {
    pub(crate) token: Token,
    /// Nothing comes from it any more beyond what there is to read.
    pub(crate) has_ended: bool,
}

#[derive(Debug)]
pub(super) struct Sleeper {
    bell: Arc<Bell>,
    poll: Poll,
    events: Events,
}

pub(super) fn bell() -> io::Result<(Arc<Bell>, Sleeper)> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), BELL)?;
    let registry = poll.registry().try_clone()?;
    let bell = Arc::new(Bell { is_asleep: AtomicBool::new(false), waker, registry });
    let events = Events::with_capacity(EVENTS_PER_LOOK_MAX);
    Ok((Arc::clone(&bell), Sleeper { bell, poll, events }))
}

impl Bell {
    /// After something was put into the inbox.
    pub(super) fn ring(&self) {
        // Either this sees that the driver sleeps, or the driver sees what was put there.
        fence(Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst)
            && let Err(error) = self.waker.wake()
        {
            tracing::warn!(%error, "the driver cannot be woken, and wakes when it has rested");
        }
    }

    /// Where sockets are registered on which the driver sleeps.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl Sleeper {
    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Sleeps until something happens, at most so long, and not at all if `is_needed` says so. Gives what
    /// happened on sockets.
    pub(super) fn sleep(
        &mut self,
        patience: Duration,
        is_needed: impl FnOnce() -> bool,
    ) -> impl Iterator<Item = SocketNews> + '_ {
        self.bell.is_asleep.store(!patience.is_zero(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let patience = if is_needed() { Duration::ZERO } else { patience };
        if let Err(error) = self.poll.poll(&mut self.events, Some(patience))
            && error.kind() != io::ErrorKind::Interrupted
        {
            tracing::error!(%error, "the driver cannot wait for its sockets");
            thread::sleep(patience);
        }
        self.bell.is_asleep.store(false, Ordering::SeqCst);
        let news = self.events.iter().filter(|event| event.token() != BELL);
        news.map(|event| SocketNews { token: event.token(), has_ended: event.is_read_closed() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_bell_wakes_a_sleeper_and_what_is_there_lets_nobody_sleep() {
        const LONG: Duration = Duration::from_secs(60);
        let (bell, mut sleeper) = bell().unwrap();
        let begun = Instant::now();
        sleeper.sleep(LONG, || true).for_each(drop);
        let ringer = thread::spawn({
            let bell = Arc::clone(&bell);
            move || {
                while !bell.is_asleep.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                bell.ring();
            }
        });
        sleeper.sleep(LONG, || false).for_each(drop);
        ringer.join().unwrap();
        assert!(begun.elapsed() < LONG);
    }
}
