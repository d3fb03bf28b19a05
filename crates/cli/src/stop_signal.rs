//! SIGTERM or Ctrl-C, for programs that run until they are told to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Code, Problem};

#[derive(Debug)]
pub(crate) struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
    has_come: bool,
}

impl StopSignal {
    /// From here on the signals no longer end the process by themselves.
    pub(crate) fn listen() -> Result<StopSignal, Problem> {
        let listen_for = |kind| {
            signal(kind).map_err(|error| {
                Problem::new(Code::Unavailable, format!("cannot listen for signals: {error}"))
            })
        };
        Ok(StopSignal {
            terminate: listen_for(SignalKind::terminate())?,
            interrupt: listen_for(SignalKind::interrupt())?,
            has_come: false,
        })
    }

    /// Once a signal has come, all later calls return at once.
    pub(crate) async fn received(&mut self) {
        if !self.has_come {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            self.has_come = true;
        }
    }
}
