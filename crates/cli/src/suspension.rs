//! Control-Z and its like, which stop a program until it is continued. While a command runs under a lock they
//! must not stop us alone: the command would go on, with no process that renews the lock or ends the command on its loss.
//!
//! Caveat: a process that is continued in the moment between looking for that and stopping has to be continued once more.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::timeout;

use crate::signals::Signals;

const SUSPENDING: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// A SIGCONT reaches us through the runtime. This long it may be on its way.
const CONTINUED_DELIVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Suspensions {
    asked: Signals,
    continued: unix::Signal,
}

impl Suspensions {
    /// From here on none of them stops this process by itself.
    pub(crate) fn listen() -> io::Result<Suspensions> {
        let continued = unix::signal(SignalKind::from_raw(Signal::SIGCONT as i32))?;
        Ok(Suspensions { asked: Signals::listen_for(&SUSPENDING)?, continued })
    }

    /// Returns when a signal asks us to stop. Safe to drop and call again.
    pub(crate) async fn asked(&mut self) {
        loop {
            tokio::select! {
                biased;
                _ = self.asked.next() => if !self.was_continued().await { return },
                _ = self.continued.recv() => {}
            }
        }
    }

    /// Returns when SIGCONT has come.
    pub(crate) async fn stop_ourselves(&mut self) {
        if timeout(CONTINUED_DELIVERY, self.continued.recv()).await.is_err() {
            // To this thread, so that it takes not a step more; all others stop with it.
            let _ = raise(Signal::SIGSTOP);
        }
    }

    /// Who was continued before it stopped need not stop; it would not be continued again.
    async fn was_continued(&mut self) -> bool {
        poll_fn(|context| Poll::Ready(self.continued.poll_recv(context).is_ready())).await
    }
}
