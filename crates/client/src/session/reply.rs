//! An answer that somebody waits for, and until when.
//!
//! The callers set no timers: the session's task looks at the clock for all of them.

use std::time::Instant;

use tokio::sync::oneshot;

/// For the task. A reply that is dropped leaves its caller without an answer.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    /// `None` once the caller's patience is at its end.
    caller: Option<oneshot::Sender<T>>,
    patience_until: Instant,
}

/// For the caller.
#[derive(Debug)]
pub(crate) struct Awaited<T> {
    answer: oneshot::Receiver<T>,
    patience_until: Instant,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    OutOfPatience,
    /// The task has ended.
    Closed,
}

pub(crate) fn reply_until<T>(patience_until: Instant) -> (Reply<T>, Awaited<T>) {
    let (caller, answer) = oneshot::channel();
    (Reply { caller: Some(caller), patience_until }, Awaited { answer, patience_until })
}

impl<T> Reply<T> {
    /// If the caller is gone the answer is dropped.
    pub(crate) fn send(self, answer: T) {
        if let Some(caller) = self.caller {
            let _ = caller.send(answer);
        }
    }

    /// Until when the caller is waiting, unless it is gone.
    pub(super) fn awaited_until(&self) -> Option<Instant> {
        self.caller.is_some().then_some(self.patience_until)
    }

    /// Lets the caller go if its time is over. Returns until when it is waiting, otherwise.
    pub(super) fn let_go_if_over(&mut self, now: Instant) -> Option<Instant> {
        if self.patience_until <= now {
            self.caller = None;
        }
        self.awaited_until()
    }
}

impl<T> Awaited<T> {
    pub(crate) fn patience_until(&self) -> Instant {
        self.patience_until
    }

    #[cfg(test)]
    pub(crate) fn try_recv(&mut self) -> Result<T, oneshot::error::TryRecvError> {
        self.answer.try_recv()
    }

    pub(crate) async fn answer(self) -> Result<T, Unanswered> {
        self.answer.await.map_err(|_| match self.patience_until <= Instant::now() {
            true => Unanswered::OutOfPatience,
            false => Unanswered::Closed,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_caller_is_let_go_when_its_time_is_over_and_not_before() {
        let now = Instant::now();
        let (mut reply, awaited) = reply_until::<u8>(now);
        assert_eq!(reply.let_go_if_over(now - Duration::from_millis(1)), Some(now));
        assert_eq!(reply.let_go_if_over(now), None);
        assert_eq!(awaited.answer().await, Err(Unanswered::OutOfPatience));
        reply.send(1);
    }

    #[tokio::test]
    async fn an_answer_that_came_in_time_is_given_however_late_it_is_looked_at() {
        let (reply, awaited) = reply_until(Instant::now());
        reply.send(7);
        assert_eq!(awaited.answer().await, Ok(7));
        let (reply, awaited) = reply_until::<u8>(Instant::now() + Duration::from_secs(60));
        drop(reply);
        assert_eq!(awaited.answer().await, Err(Unanswered::Closed));
    }
}
