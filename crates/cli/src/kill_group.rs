//! The hidden companion of `holdfast lock`, which watches over the lock's holder.
//!
//! - If the holder is killed without a chance to act, it kills the command's whole process group.
//! - If the holder stands still (SIGSTOP cannot be caught) while its lease ends, it ends the group as the holder
//!   would have: SIGTERM, and SIGKILL after the grace.
//!
//! Its stdin is a pipe from the holder ([`crate::companion`]); the end of it without a farewell means that the
//! holder is dead.

use std::io::Read;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::companion::{FAREWELL, NO_END, nanos, now};
use crate::exit::{Code, Problem};

/// A holder that is awake acts first.
const HEAD_START: Duration = Duration::from_millis(100);
/// Timers stand still while the machine sleeps.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub(crate) struct KillGroupArgs {
    #[arg(long)]
    group: i32,
    #[arg(long)]
    grace_ms: u64,
    /// A file descriptor whose reader waits for the end of it.
    #[arg(long)]
    close: Option<i32>,
}

pub(crate) fn run(args: KillGroupArgs) -> Result<ExitCode, Problem> {
    if let Some(number) = args.close {
        let _ = nix::unistd::close(number);
    }
    let send = |signal| {
        // The group may be gone already.
        let _ = killpg(Pid::from_raw(args.group), signal);
    };
    let cannot = |error| Problem::new(Code::Unavailable, format!("cannot watch: {error}"));
    let told = numbers_from_stdin().map_err(cannot)?;
    let grace = nanos(Duration::from_millis(args.grace_ms));
    let mut term_at = NO_END;
    let mut kill_at = NO_END;
    loop {
        let left = term_at.min(kill_at).saturating_sub(now().map_err(cannot)?);
        match told.recv_timeout(Duration::from_nanos(left).min(LOOK_INTERVAL)) {
            Ok(FAREWELL) => return Ok(ExitCode::SUCCESS),
            Ok(lease_end) => {
                term_at = lease_end.saturating_add(nanos(HEAD_START));
                kill_at = term_at.saturating_add(grace);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                send(Signal::SIGKILL);
                return Ok(ExitCode::SUCCESS);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = now().map_err(cannot)?;
        if now >= term_at {
            term_at = NO_END;
            send(Signal::SIGTERM);
            send(Signal::SIGCONT);
        }
        if now >= kill_at {
            kill_at = NO_END;
            send(Signal::SIGKILL);
        }
    }
}

/// A thread reads them, because reading has no timeout.
fn numbers_from_stdin() -> std::io::Result<Receiver<u64>> {
    let (tell, told) = sync_channel(1);
    thread::Builder::new().spawn(move || {
        let mut number = [0; 8];
        let mut stdin = std::io::stdin().lock();
        while stdin.read_exact(&mut number).is_ok() {
            if tell.send(u64::from_be_bytes(number)).is_err() {
                return;
            }
        }
    })?;
    Ok(told)
}
