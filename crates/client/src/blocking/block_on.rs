//! A runtime in the background, and futures that the caller's thread runs to their end.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::CircuitState;

/// How long the end of a program may be held up for the cluster to hear of it.
const CLOSING_PATIENCE: Duration = Duration::from_secs(2);

/// One thread, which does the session's work.
#[derive(Debug)]
pub(super) struct Background {
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
    /// Closed when the background is no longer needed.
    session: OnceLock<crate::Client>,
}

impl Background {
    pub(super) fn start() -> io::Result<Background> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("holdfast-client")
            .enable_all()
            .build()?;
        Ok(Background { runtime: Some(runtime), session: OnceLock::new() })
    }

    pub(super) fn keep(&self, session: crate::Client) {
        // There is one per background.
        let _ = self.session.set(session);
    }

    /// Unlike a runtime's own, this one can be called from any thread: in a thread of another runtime it
    /// blocks that thread, instead of ending the program.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        // For the timers of the future.
        let _entered = self.runtime.as_ref().map(Runtime::enter);
        let alarm = Arc::new(Alarm { sleeper: thread::current(), rang: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        // In a task of another runtime this would count as that task's work, and once the task has had its
        // share nothing would ever be ready: it is asked to give way, and cannot.
        let mut future = pin!(tokio::task::unconstrained(future));
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => return output,
                Poll::Pending => alarm.sleep(),
            }
        }
    }
}

impl Drop for Background {
    /// With its thread the session's work ends, so the session is closed before. It is not waited for the thread:
    /// this may be a thread of another runtime.
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && session.circuit().state() == CircuitState::Closed
        {
            let closed = async { tokio::time::timeout(CLOSING_PATIENCE, session.close()).await };
            if !matches!(self.block_on(closed), Ok(Ok(()))) {
                tracing::debug!("the session was not closed in words; its linger time ends it");
            }
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Alarm {
    sleeper: Thread,
    /// Others may wake the thread for reasons of their own, and may use up what was meant for this one.
    rang: AtomicBool,
}

impl Alarm {
    fn sleep(&self) {
        while !self.rang.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Alarm>) {
        self.rang.store(true, Ordering::Release);
        self.sleeper.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_run_and_other_threads_wake_it() {
        let background = Background::start().unwrap();
        let slept = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tokio::spawn(async { 7 }).await.unwrap()
        };
        assert_eq!(background.block_on(slept), 7);
    }

    #[tokio::test]
    async fn block_on_in_a_thread_of_another_runtime_works() {
        let background = Background::start().unwrap();
        assert_eq!(background.block_on(async { 7 }), 7);
        drop(background);
    }

    /// A task that never gives way has its share of work used up soon.
    #[tokio::test]
    async fn block_on_in_a_task_of_another_runtime_runs_until_the_work_is_done() {
        let background = Background::start().unwrap();
        for round in 0..1_000 {
            let answered = async move {
                let (answer, answered) = tokio::sync::oneshot::channel();
                tokio::spawn(async move { answer.send(round) });
                tokio::time::timeout(Duration::from_secs(10), answered).await
            };
            assert_eq!(background.block_on(answered).unwrap(), Ok(round));
        }
    }

    #[test]
    fn a_wake_up_consumed_by_another_future_still_counts() {
        let alarm = Arc::new(Alarm { sleeper: thread::current(), rang: AtomicBool::new(false) });
        Arc::clone(&alarm).wake();
        thread::park();
        alarm.sleep();
    }
}
