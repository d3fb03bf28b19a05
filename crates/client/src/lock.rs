//! Asking for a lock: `client.lock(name).wait(..).acquire().await`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_proto::v1::{AcquireRequest, Mode};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::AcquireError;
use crate::guard::Guard;
use crate::session::{AcquireCall, Command, Handle, Ticket, whole_ms};

/// A lock that is about to be asked for.
#[must_use = "nothing is asked for until acquire() is awaited"]
pub struct LockRequest {
    handle: Handle,
    name: String,
    wait: Duration,
    ttl: Option<Duration>,
    max_hold: Option<Duration>,
    metadata: Vec<u8>,
    actor: u64,
    on_queued: Option<Box<dyn FnOnce(u64) + Send>>,
}

impl LockRequest {
    pub(crate) fn new(handle: Handle, name: String) -> LockRequest {
        LockRequest {
            handle,
            name,
            wait: Duration::ZERO,
            ttl: None,
            max_hold: None,
            metadata: Vec::new(),
            actor: 0,
            on_queued: None,
        }
    }

    /// How long to wait in the queue. Without it the lock is tried once, and may be `Busy`.
    pub fn wait(mut self, wait: Duration) -> LockRequest {
        self.wait = wait;
        self
    }

    /// A TTL of the hold's own: it ends after this time unless [`Guard::renew`] is called, even while
    /// the session lives.
    pub fn ttl(mut self, ttl: Duration) -> LockRequest {
        self.ttl = Some(ttl);
        self
    }

    /// The hold ends after this time, whatever is renewed.
    pub fn max_hold(mut self, max_hold: Duration) -> LockRequest {
        self.max_hold = Some(max_hold);
        self
    }

    /// Shown to people who look at the lock.
    pub fn metadata(mut self, metadata: impl Into<Vec<u8>>) -> LockRequest {
        self.metadata = metadata.into();
        self
    }

    /// Which task of this session asks; 0, the default, is the session itself.
    pub fn actor(mut self, actor: u64) -> LockRequest {
        self.actor = actor;
        self
    }

    /// Called once with the place in the queue (1 is next) if the lock has to be waited for.
    pub fn on_queued(mut self, told: impl FnOnce(u64) + Send + 'static) -> LockRequest {
        self.on_queued = Some(Box::new(told));
        self
    }

    /// Returns the held lock. Dropping the future gives up the place in the queue, and releases the
    /// lock if it was granted in the meantime.
    pub async fn acquire(self) -> Result<Guard, AcquireError> {
        let LockRequest { handle, name, wait, ttl, max_hold, metadata, actor, on_queued } = self;
        let (reply, answer) = oneshot::channel();
        let was_sent = Arc::new(AtomicBool::new(false));
        let mut abandon = AbandonOnDrop { handle: &handle, ticket: Some(handle.next_ticket()) };
        let Some(ticket) = abandon.ticket else {
            return Err(AcquireError::Closed);
        };
        handle.send(Command::Acquire(AcquireCall {
            request: AcquireRequest {
                name,
                mode: Mode::Exclusive.into(),
                wait_ms: whole_ms(wait),
                ttl_ms: ttl.map(whole_ms),
                max_hold_ms: max_hold.map(whole_ms),
                actor,
                metadata,
                ..Default::default()
            },
            ticket,
            reply,
            on_queued,
            was_sent: Arc::clone(&was_sent),
            handle: Some(handle.clone()),
        }));
        match timeout(wait.saturating_add(handle.request_timeout()), answer).await {
            Ok(answer) => {
                abandon.ticket = None;
                let guard = answer.unwrap_or(Err(AcquireError::Closed))?;
                // A grant may have been so long on its way that it is over by now.
                guard.token()?;
                Ok(guard)
            }
            Err(_) => {
                let may_have_happened = was_sent.load(Ordering::Relaxed);
                Err(AcquireError::Unavailable(handle.unavailable(may_have_happened)))
            }
        }
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("name", &self.name)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

struct AbandonOnDrop<'a> {
    handle: &'a Handle,
    ticket: Option<Ticket>,
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.handle.send(Command::Abandon(ticket));
        }
    }
}
