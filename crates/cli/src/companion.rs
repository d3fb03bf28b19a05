//! Our side of the companion process ([`crate::kill_group`]), which sees to the end of the command when we cannot:
//! because we are dead, or stand still past the end of the lease.
//!
//! It hears from us through a pipe: numbers of 8 bytes, each the time at which the lease ends, or one of those below.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use tokio::net::unix::pipe;

/// All is well, and the companion may go.
pub(crate) const FAREWELL: u64 = 0;
/// A lease whose end does not matter.
pub(crate) const NO_END: u64 = u64::MAX;

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Nanoseconds on a clock that both processes read, and that runs on while the machine sleeps.
pub(crate) fn now() -> io::Result<u64> {
    let time = Duration::from(clock_gettime(CLOCK)?);
    Ok(nanos(time))
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(NO_END)
}

pub(crate) struct Companion {
    process: Child,
    /// Never waits: a companion that stands still must not hold us up.
    pipe: File,
}

impl Companion {
    /// `not_inherited`: a file descriptor whose reader waits for the end of it.
    pub(crate) fn start(
        this_program: &Path,
        group: Pid,
        grace: Duration,
        not_inherited: Option<i32>,
    ) -> io::Result<Companion> {
        let (pipe, its_stdin) = pipe::pipe()?;
        let pipe = File::from(pipe.into_nonblocking_fd()?);
        let process = Command::new(this_program)
            .arg0("holdfast")
            .args(["kill-group", "--group", &group.to_string()])
            .arg(format!("--grace-ms={}", grace.as_millis()))
            .args(not_inherited.map(|number| format!("--close={number}")))
            .stdin(Stdio::from(its_stdin.into_blocking_fd()?))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Companion { process, pipe })
    }

    /// The lease ends after this span, unless more is told by then.
    pub(crate) fn held_for(&self, span: Duration) {
        if let Ok(now) = now() {
            self.tell(now.saturating_add(nanos(span)));
        }
    }

    /// The companion has to look only at whether we live.
    pub(crate) fn held_without_end(&self) {
        self.tell(NO_END);
    }

    fn tell(&self, number: u64) {
        // So little is written as a whole or not at all.
        let _ = (&self.pipe).write(&number.to_be_bytes());
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.tell(FAREWELL);
        let _ = self.process.wait();
    }
}
