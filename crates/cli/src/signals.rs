//! Signals that are meant for the command under a lock: we hear them and pass them on.
//!
//! One that was ignored when this program started (`nohup`, a background job of a script) stays ignored, by us
//! and by the command.

use std::future::poll_fn;
use std::io;
use std::process::ExitCode;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix;

use crate::exit::{Code, Problem};

const PASSED_ON: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Those that end a program which runs no command.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

#[derive(Debug)]
pub(crate) struct Signals {
    heard: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// From here on none of them ends this process by itself.
    pub(crate) fn listen() -> Result<Signals, Problem> {
        Signals::listen_for(&PASSED_ON).map_err(cannot_listen)
    }

    /// As [`Signals::listen`], for a program without a command under it.
    pub(crate) fn listen_for_the_end() -> Result<Signals, Problem> {
        Signals::listen_for(&ENDING).map_err(cannot_listen)
    }

    pub(crate) fn listen_for(signals: &[Signal]) -> io::Result<Signals> {
        let ignored = ignored_signals();
        let wanted = signals.iter().copied().filter(|signal| !is_in(ignored, *signal));
        let heard = wanted.map(|signal| {
            let kind = unix::SignalKind::from_raw(signal as i32);
            Ok((signal, unix::signal(kind)?))
        });
        Ok(Signals { heard: heard.collect::<io::Result<_>>()? })
    }

    /// The next one. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let ready = self.heard.iter_mut().find_map(|(signal, heard)| {
                matches!(heard.poll_recv(context), Poll::Ready(Some(()))).then_some(*signal)
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

fn cannot_listen(error: io::Error) -> Problem {
    Problem::new(Code::Unavailable, format!("cannot listen for signals: {error}"))
}

/// How a program ends that a signal has ended, as shells report it.
pub(crate) fn exit_code(signal: Signal) -> ExitCode {
    let number = u8::try_from(signal as i32).unwrap_or(u8::MAX);
    ExitCode::from(128u8.saturating_add(number))
}

/// The mask of ignored signals, as the kernel tells it; nothing where it does not.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    mask_in(&status).unwrap_or(0)
}

fn mask_in(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn is_in(mask: u64, signal: Signal) -> bool {
    let bit = u32::try_from(signal as i32 - 1).unwrap_or(0);
    mask.checked_shr(bit).is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_ignores_is_told_by_the_kernel() {
        let mask = mask_in("Name:\tholdfast\nSigIgn:\t0000000000001001\nSigCgt:\t0\n").unwrap();
        assert!(is_in(mask, Signal::SIGHUP) && is_in(mask, Signal::SIGPIPE));
        assert!(!is_in(mask, Signal::SIGTERM) && !is_in(mask, Signal::SIGINT));
    }
}
