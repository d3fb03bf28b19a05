//! Asking for a lock: a try, and if it is busy another when there is news or time has passed.

use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::backoff::Backoff;
use holdfast_client_core::circuit::CircuitState;
use holdfast_client_core::lease::LocalTime;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::hold::{Granted, Hold};
use crate::jitter::jitter_seed;
use crate::keeper::{Keeper, Span, give_back};
use crate::listening::Listening;
use crate::store::StoreDown;
use crate::store::{Attempt, Claim};
use crate::{HeldLock, RedisLocks, jitter};
use holdfast_lease_clock as clock;

/// How often it is asked again while releases are heard of: a release may be lost with its connection, and a lock that
/// is not released ends in silence.
const POLL_WITH_NEWS: Duration = Duration::from_secs(1);
/// And while they are not.
const POLL_WITHOUT_NEWS: Duration = Duration::from_millis(100);
/// After the lock's time is over on the server.
const EXPIRY_SLACK: Duration = Duration::from_millis(2);

/// Commands of one guard that are under way. More wait.
const COMMANDS_MAX: usize = 16;

/// A lock as it is wanted.
#[derive(Debug, Clone)]
pub struct Request {
    pub name: String,
    pub wait: Duration,
    pub own_ttl: Option<Duration>,
    pub max_hold: Option<Duration>,
}

#[derive(Debug)]
pub enum NotGranted {
    Busy,
    TimedOut,
    Closed,
    Down(StoreDown),
}

impl RedisLocks {
    /// If the future is dropped, nothing is left behind.
    pub async fn acquire(
        self: &Arc<RedisLocks>,
        request: &Request,
    ) -> Result<HeldLock, NotGranted> {
        // The semaphore is never closed.
        let _permit = self.calls.acquire().await.map_err(|_| NotGranted::Closed)?;
        let circuit = self.circuit();
        let give_up_at = Instant::now().checked_add(request.wait);
        let left = || {
            give_up_at.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
        };
        let mut backoff = Backoff::new(jitter_seed());
        let mut listening = None;
        loop {
            if *self.closing.borrow() {
                return Err(NotGranted::Closed);
            }
            let is_circuit_closed = *circuit.borrow() == CircuitState::Closed;
            if !is_circuit_closed {
                return Err(NotGranted::Down(StoreDown::circuit_open()));
            }
            match self.try_once(request).await {
                Ok(Tried::Granted(kept)) => return Ok(kept),
                Ok(Tried::Busy { .. }) if request.wait.is_zero() => return Err(NotGranted::Busy),
                Ok(Tried::Busy { .. }) if left().is_zero() => return Err(NotGranted::TimedOut),
                Ok(Tried::Busy { free_in }) => {
                    self.await_next_try(&request.name, &mut listening, free_in, left()).await;
                }
                // It may be back before the circuit opens.
                Err(down) if left().is_zero() => return Err(NotGranted::Down(down)),
                Err(_) => sleep(backoff.next_delay().min(left())).await,
            }
        }
    }

    async fn await_next_try(
        &self,
        name: &str,
        listening: &mut Option<Listening>,
        free_in: Option<Duration>,
        left: Duration,
    ) {
        if listening.is_none() {
            *listening = self.store.listen(name);
        }
        let has_news = listening.as_ref().is_some_and(Listening::is_connected);
        let poll = if has_news { POLL_WITH_NEWS } else { POLL_WITHOUT_NEWS };
        let expiry = free_in.map_or(Duration::MAX, |span| span.saturating_add(EXPIRY_SLACK));
        let pause = jitter::around(poll).min(expiry).min(left);
        match listening {
            Some(listening) => listening.news(pause).await,
            None => sleep(pause).await,
        }
    }

    async fn try_once(self: &Arc<RedisLocks>, request: &Request) -> Result<Tried, StoreDown> {
        let claim = Claim::new(&request.name).ok_or_else(StoreDown::no_randomness)?;
        let sent_at = clock::now();
        let span = Span {
            ttl: request.own_ttl.unwrap_or(self.ttl),
            is_own: request.own_ttl.is_some(),
            ends_at: request.max_hold.map(|max| LocalTime(sent_at.0.saturating_add(max))),
        };
        let ttl = span.next(sent_at).unwrap_or(Duration::ZERO);
        let mut unknown = Unknown { locks: Some(self), claim: &claim, ttl };
        let attempt = self.store.acquire(&claim, jitter::prolonged(ttl).max(MIN_TTL)).await;
        if !matches!(&attempt, Err(down) if down.may_have_happened) {
            unknown.is_known();
        }
        match attempt? {
            Attempt::Busy { free_in } => Ok(Tried::Busy { free_in }),
            Attempt::Granted { token } => {
                let is_own = span.is_own || ttl < span.ttl;
                let granted = Granted { sent_at, ttl, is_own };
                Ok(self.keep(claim.clone(), token, granted, Span { is_own, ..span }))
            }
        }
    }

    /// A grant may have been so long on its way that it is over by now: then it is as good as busy.
    fn keep(&self, claim: Claim, token: u64, granted: Granted, span: Span) -> Tried {
        let hold = Hold::new(claim.name.clone(), token, granted);
        let hold = Arc::new(hold);
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let keeper = Keeper {
            store: Arc::clone(&self.store),
            hold: Arc::clone(&hold),
            claim,
            span,
            commands: inbox,
            closing: self.closing.subscribe(),
            counts: Arc::clone(&self.counts),
            is_loss_counted: false,
        };
        tokio::spawn(keeper.run());
        let kept = HeldLock { hold, commands };
        match kept.hold.check() {
            Ok(()) => Tried::Granted(kept),
            Err(_) => Tried::Busy { free_in: None },
        }
    }
}

/// Redis takes no shorter one.
const MIN_TTL: Duration = Duration::from_millis(1);

enum Tried {
    Granted(HeldLock),
    Busy { free_in: Option<Duration> },
}

/// A try of which it is not known what came. If it is dropped like this, because the caller is gone or there was no
/// answer, the claim is given back.
struct Unknown<'a> {
    locks: Option<&'a Arc<RedisLocks>>,
    claim: &'a Claim,
    ttl: Duration,
}

impl Unknown<'_> {
    fn is_known(&mut self) {
        self.locks = None;
    }
}

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        let Some(locks) = self.locks else { return };
        let (store, claim, ttl) = (Arc::clone(&locks.store), self.claim.clone(), self.ttl);
        // A close of the client waits for this too.
        let closing = locks.closing.subscribe();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                give_back(&*store, &claim, ttl).await;
                drop(closing);
            });
        }
    }
}
