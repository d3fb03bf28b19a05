//! The hidden companion of `holdfast lock`: if the lock's holder is killed without a chance to act,
//! it kills the command's whole process group.
//!
//! Its stdin is a pipe from the holder. A byte means that all is well and the companion may go; the
//! end of the pipe without a byte means that the holder is dead.

use std::io::Read;
use std::process::ExitCode;

use clap::Args;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::exit::Problem;

#[derive(Debug, Args)]
pub(crate) struct KillGroupArgs {
    #[arg(long)]
    group: i32,
    /// A file descriptor whose reader waits for the end of it.
    #[arg(long)]
    close: Option<i32>,
}

pub(crate) fn run(args: KillGroupArgs) -> Result<ExitCode, Problem> {
    if let Some(number) = args.close {
        let _ = nix::unistd::close(number);
    }
    let mut word = [0];
    let holder_is_dead = !matches!(std::io::stdin().read(&mut word), Ok(1));
    if holder_is_dead {
        // The group may be gone already.
        let _ = killpg(Pid::from_raw(args.group), Signal::SIGKILL);
    }
    Ok(ExitCode::SUCCESS)
}
