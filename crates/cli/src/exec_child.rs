//! The hidden first step of the command under `holdfast lock`: ask to be killed if the parent dies,
//! then become the command.
//!
//! It is a step of its own because the asking has to happen in the child, between fork and exec,
//! where Rust allows only `unsafe` code; a program that asks for itself needs none.

use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;
use nix::sys::signal::Signal;

use crate::exit::{Code, Problem};
use crate::output;
use crate::status_fd;

/// As shells have it.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

#[derive(Debug, Args)]
pub(crate) struct ExecChildArgs {
    #[arg(long)]
    pub(crate) parent: i32,
    /// A pipe. The command begins when a byte comes through it, and never if it ends before.
    #[arg(long)]
    pub(crate) gate: Option<i32>,
    /// A file descriptor that is not the command's.
    #[arg(long)]
    pub(crate) close: Option<i32>,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

pub(crate) fn run(args: ExecChildArgs) -> Result<ExitCode, Problem> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| Problem::new(Code::Unavailable, format!("cannot guard: {error}")))?;
    // The parent may have died before the line above.
    let holder_died = || Problem::new(Code::LockLost, "the holder of the lock died at the start");
    if nix::unistd::getppid().as_raw() != args.parent {
        return Err(holder_died());
    }
    if let Some(number) = args.gate {
        let opened = status_fd::duplicate(number).and_then(|mut gate| gate.read(&mut [0]));
        let _ = nix::unistd::close(number);
        if opened.unwrap_or(0) == 0 {
            return Err(holder_died());
        }
    }
    if let Some(number) = args.close {
        // If it cannot be closed the command merely has one more than it needs.
        let _ = nix::unistd::close(number);
    }
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Problem::new(Code::Usage, "no command given"));
    };
    let error = Command::new(program).args(arguments).exec();
    output::message(&format!("cannot run {}: {error}", program.to_string_lossy()));
    Ok(ExitCode::from(match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }))
}
