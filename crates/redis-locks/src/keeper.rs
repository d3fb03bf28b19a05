//! The task that looks after one hold: it extends it in time, and releases it in the end. Because one task does
//! both, one after the other, no extension outlives the release.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_client_core::backoff::Backoff;
use holdfast_client_core::error::{LossReason, Lost};
use holdfast_client_core::hold::ReleaseOutcome;
use holdfast_client_core::lease::LocalTime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use crate::hold::Hold;
use crate::jitter;
use crate::jitter::jitter_seed;
use crate::store::StoreDown;
use crate::store::{Claim, Store};
use crate::{Counters, RenewError};
use holdfast_lease_clock as clock;

pub(crate) type ReleaseReply = oneshot::Sender<Result<ReleaseOutcome, StoreDown>>;

/// What a guard asks for. A guard that is gone asks for a release.
#[derive(Debug)]
pub(crate) enum Command {
    Renew { ttl: Option<Duration>, reply: oneshot::Sender<Result<(), RenewError>> },
    Release { reply: ReleaseReply },
}

/// How long a hold lives, and by whom it is extended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) ttl: Duration,
    /// The caller extends it, and not the keeper.
    pub(super) is_own: bool,
    /// It is not extended past this.
    pub(super) ends_at: Option<LocalTime>,
}

impl Span {
    /// What an extension that is sent now may ask for; `None` when the maximum is reached.
    pub(super) fn next(&self, now: LocalTime) -> Option<Duration> {
        match self.ends_at {
            None => Some(self.ttl),
            Some(end) => {
                let left = end.saturating_since(now);
                (!left.is_zero()).then_some(left.min(self.ttl))
            }
        }
    }
}

pub(super) struct Keeper {
    pub(super) store: Arc<dyn Store>,
    pub(super) hold: Arc<Hold>,
    pub(super) claim: Claim,
    pub(super) span: Span,
    pub(super) commands: mpsc::Receiver<Command>,
    /// True once the client is closed. The close waits until no keeper has this any more.
    pub(super) closing: watch::Receiver<bool>,
    pub(super) counts: Arc<Counters>,
    pub(super) is_loss_counted: bool,
}

impl Keeper {
    pub(super) async fn run(mut self) {
        let mut returns = self.store.returns();
        let mut backoff = Backoff::new(jitter_seed());
        let mut next_look = self.renewal_interval();
        loop {
            let is_lost = self.is_lost();
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Renew { ttl, reply }) => {
                        let _ = reply.send(self.renew(ttl).await);
                    }
                    Some(Command::Release { reply }) => return self.release(Some(reply)).await,
                    None => return self.release(None).await,
                },
                () = closed(&mut self.closing) => {
                    self.hold.lose(LossReason::SessionClosed);
                    return self.release(None).await;
                }
                // Servers that come back may come back empty.
                Ok(()) = returns.changed(), if !is_lost => {
                    if self.span.is_own {
                        let left = self.left();
                        let _ = self.extend(left).await;
                    } else {
                        next_look = self.look(&mut backoff).await;
                    }
                }
                () = sleep(next_look), if !is_lost => next_look = self.look(&mut backoff).await,
            }
        }
    }

    /// Extends the hold if that is the keeper's work. Returns when to look again.
    async fn look(&mut self, backoff: &mut Backoff) -> Duration {
        if self.span.is_own {
            return self.left().max(MIN_PAUSE);
        }
        let Some(ttl) = self.span.next(clock::now()) else {
            self.end_by_itself();
            return MIN_PAUSE;
        };
        match self.extend(ttl).await {
            Ok(()) => {
                backoff.reset();
                if ttl < self.span.ttl {
                    // It reaches the maximum by that.
                    self.end_by_itself();
                }
                self.renewal_interval()
            }
            Err(RenewError::Lost(_)) => MIN_PAUSE,
            // Soon, so that a short failure costs no lock.
            Err(_) => backoff.next_delay().min(self.span.ttl / 20).max(MIN_PAUSE),
        }
    }

    async fn renew(&mut self, ttl: Option<Duration>) -> Result<(), RenewError> {
        if let Some(ttl) = ttl {
            self.span.ttl = ttl;
        }
        match self.span.next(clock::now()) {
            Some(ttl) => self.extend(ttl).await,
            None => Err(Lost { reason: LossReason::MaxHold }.into()),
        }
    }

    async fn extend(&self, ttl: Duration) -> Result<(), RenewError> {
        self.hold.check()?;
        let sent_at = clock::now();
        self.hold.extending(sent_at, ttl);
        match self.store.extend(&self.claim, jitter::prolonged(ttl)).await {
            Ok(true) => {
                // The news may have come too late.
                self.hold.check()?;
                self.hold.extended(sent_at, ttl);
                self.counts.renewed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ok(false) => {
                self.hold.lose(LossReason::Gone);
                Err(self.hold.check().err().unwrap_or(Lost { reason: LossReason::Gone }).into())
            }
            Err(down) => Err(RenewError::Down(down)),
        }
    }

    async fn release(mut self, reply: Option<ReleaseReply>) {
        let lost = self.is_lost();
        let first = self.store.release(&self.claim).await;
        let failed = first.is_err();
        let outcome = match first {
            Ok(true) if !lost => Ok(ReleaseOutcome::Released),
            Ok(_) => Ok(ReleaseOutcome::Expired),
            Err(down) => Err(down),
        };
        if let Some(reply) = reply {
            let _ = reply.send(outcome);
        }
        if failed {
            give_back(&*self.store, &self.claim, self.span.ttl).await;
        }
    }

    fn end_by_itself(&mut self) {
        self.span.is_own = true;
        self.hold.ends_by_itself();
    }

    fn is_lost(&mut self) -> bool {
        let is_lost = self.hold.check().is_err();
        if is_lost && !self.is_loss_counted {
            self.is_loss_counted = true;
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        is_lost
    }

    /// How long the hold is certainly there.
    fn left(&self) -> Duration {
        self.hold.valid_until().saturating_since(clock::now())
    }

    fn renewal_interval(&self) -> Duration {
        match self.span.is_own {
            true => self.left(),
            false => jitter::shortened(self.span.ttl / 3),
        }
    }
}

async fn closed(closing: &mut watch::Receiver<bool>) {
    if closing.wait_for(|is_closing| *is_closing).await.is_err() {
        // The client is gone, and was not closed: its guards are what counts.
        std::future::pending().await
    }
}

/// Never busy, whatever the times are.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// Goes on until it is known that nothing is left of the claim, or its TTL has seen to that.
pub(super) async fn give_back(store: &dyn Store, claim: &Claim, ttl: Duration) {
    let mut backoff = Backoff::new(jitter_seed());
    let released = async {
        while let Err(StoreDown { .. }) = store.release(claim).await {
            sleep(backoff.next_delay()).await;
        }
    };
    let _ = tokio::time::timeout(jitter::longest(ttl), released).await;
}
