//! The loss of a hold, as shared by the session and its guards.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::LossReason;

/// The first reason for which a hold, or one of several that are held together, was lost. It is shared by the session
/// and the guards.
#[derive(Debug, Clone, Default)]
pub struct Loss {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    reason: OnceLock<LossReason>,
    waiting: Mutex<Waiting>,
}

/// The tasks that wait for the loss. Each removes its entry when it stops waiting.
#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Loss {
    /// Records the loss. Only the first reason counts.
    pub fn report(&self, reason: LossReason) {
        if self.shared.reason.set(reason).is_ok() {
            let wakers = std::mem::take(&mut self.shared.waiting().wakers);
            wakers.into_values().for_each(Waker::wake);
        }
    }

    pub fn reason(&self) -> Option<LossReason> {
        self.shared.reason.get().copied()
    }

    /// Ready when there is a reason.
    pub fn signal(&self) -> LossSignal {
        LossSignal { shared: Arc::clone(&self.shared), number: None }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Loss::signal`].
#[derive(Debug)]
pub struct LossSignal {
    shared: Arc<Shared>,
    /// Under which its waker is known.
    number: Option<u64>,
}

impl Future for LossSignal {
    type Output = LossReason;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LossReason> {
        let shared = Arc::clone(&self.shared);
        let mut waiting = shared.waiting();
        // The reason is set before the wakers are taken: it is seen here, or the waker there.
        if let Some(reason) = shared.reason.get() {
            return Poll::Ready(*reason);
        }
        let number = *self.number.get_or_insert_with(|| {
            waiting.last += 1;
            waiting.last
        });
        waiting.wakers.insert(number, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for LossSignal {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.waiting().wakers.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_first_loss_reason_stays_and_wakes_all_waiters() {
        let (loss, count) = (Loss::default(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut waits = pin!(loss.signal());
        {
            let mut leaves = pin!(loss.signal());
            assert_eq!(leaves.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!(waits.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!(waits.as_mut().poll(&mut context), Poll::Pending);
        }
        loss.report(LossReason::Broken);
        loss.report(LossReason::Ended);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(waits.poll(&mut context), Poll::Ready(LossReason::Broken));
        assert_eq!(pin!(loss.signal()).poll(&mut context), Poll::Ready(LossReason::Broken));
        assert_eq!(loss.reason(), Some(LossReason::Broken));
    }
}
