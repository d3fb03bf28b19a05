//! The shard thread waits for its inbox, for the connections from its peers and for client connections at once. A thread
//! that puts something into the inbox wakes it, which costs a system call only if the shard does wait.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread;
use std::time::Duration;

use mio::{Events, Poll, Registry, Token};

const WOKEN: Token = Token(0);
/// A wire to some peer has room again, or has ended.
pub(crate) const ROOM: Token = Token(1);
const EVENTS_PER_LOOK_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Waker {
    is_waiting: AtomicBool,
    waker: mio::Waker,
    registry: Registry,
}

/// Something happened on a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketEvents {
    pub(crate) token: Token,
    pub(crate) is_readable: bool,
    /// Nothing comes from it any more beyond what there is to read.
    pub(crate) has_ended: bool,
}

#[derive(Debug)]
pub(crate) struct Poller {
    waker: Arc<Waker>,
    poll: Poll,
    events: Events,
}

pub(crate) fn poller() -> io::Result<(Arc<Waker>, Poller)> {
    let poll = Poll::new()?;
    let waker = mio::Waker::new(poll.registry(), WOKEN)?;
    let registry = poll.registry().try_clone()?;
    let waker = Arc::new(Waker { is_waiting: AtomicBool::new(false), waker, registry });
    let events = Events::with_capacity(EVENTS_PER_LOOK_MAX);
    Ok((Arc::clone(&waker), Poller { waker, poll, events }))
}

impl Waker {
    /// After something was put into the inbox.
    pub(crate) fn wake(&self) {
        // Either this sees that the shard waits, or the shard sees what was put there.
        fence(Ordering::SeqCst);
        if self.is_waiting.swap(false, Ordering::SeqCst)
            && let Err(error) = self.waker.wake()
        {
            tracing::warn!(%error, "the shard cannot be woken, and goes on when its time is over");
        }
    }

    /// Where sockets are registered that the shard waits for.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl Poller {
    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Waits until something happens, at most so long, and not at all if `is_needed` says so. Gives what
    /// happened on sockets.
    pub(crate) fn wait(
        &mut self,
        patience: Duration,
        is_needed: impl FnOnce() -> bool,
    ) -> impl Iterator<Item = SocketEvents> + '_ {
        self.waker.is_waiting.store(!patience.is_zero(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let patience = if is_needed() { Duration::ZERO } else { patience };
        if let Err(error) = self.poll.poll(&mut self.events, Some(patience))
            && error.kind() != io::ErrorKind::Interrupted
        {
            tracing::error!(%error, "the shard cannot wait for its sockets");
            thread::sleep(patience);
        }
        self.waker.is_waiting.store(false, Ordering::SeqCst);
        let news = self.events.iter().filter(|event| event.token() != WOKEN);
        news.map(|event| SocketEvents {
            token: event.token(),
            is_readable: event.is_readable(),
            has_ended: event.is_read_closed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_waiting_poller_is_woken_and_one_that_has_something_to_do_does_not_wait() {
        const LONG: Duration = Duration::from_secs(60);
        let (waker, mut poller) = poller().unwrap();
        let begun = Instant::now();
        poller.wait(LONG, || true).for_each(drop);
        let other = thread::spawn({
            let waker = Arc::clone(&waker);
            move || {
                while !waker.is_waiting.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                waker.wake();
            }
        });
        poller.wait(LONG, || false).for_each(drop);
        other.join().unwrap();
        assert!(begun.elapsed() < LONG);
    }
}
