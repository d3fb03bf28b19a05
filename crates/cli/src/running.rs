//! The command that runs under a lock: a process group of its own, which dies with us.
//!
//! - The command gets the terminal if we had it: a background group could not read from it.
//! - If we are killed, the command is killed by the kernel ([`crate::exec_child`]), and the rest of
//!   its group by a companion ([`crate::companion`]), which also ends the group if we stand still. When all of it is
//!   dead, the companion ends the session. The command begins after the companion was told its group.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::companion::group::Group;
use crate::companion_link::{GroupWatch, this_program};
use crate::end_group::{Ended, ProcessGroup};
use crate::nonblocking_output::NonblockingOutput;
use crate::output;

const GROUP_LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long a command may take to stop by itself.
const SUSPEND_PATIENCE: Duration = Duration::from_millis(250);

const NOT_SUSPENDED: &str = "a command that holds a lock is not suspended";

pub(crate) struct Running {
    group: Pid,
    watch: GroupWatch,
    has_terminal: bool,
    ended: Option<Ended>,
    is_stopped: bool,
    children_changed: tokio::signal::unix::Signal,
    stderr: NonblockingOutput,
}

impl Running {
    /// `not_inherited`: a file descriptor that is not the command's.
    pub(crate) fn start(
        command: &[OsString],
        environment: &[(&str, String)],
        not_inherited: Option<i32>,
        stderr: NonblockingOutput,
    ) -> io::Result<Running> {
        // Before the command starts, so that its end is not missed.
        let children_changed = signal(SignalKind::child())?;
        let watch = GroupWatch::new()?;
        let (gate, mut gate_key) = io::pipe()?;
        fcntl(&gate, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let child = Command::new(this_program()?)
            .arg0("holdfast")
            .args(["exec-child", "--parent", &std::process::id().to_string()])
            .arg(format!("--gate={}", gate.as_raw_fd()))
            .args(not_inherited.map(|number| format!("--close={number}")))
            .arg("--")
            .args(command)
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .process_group(0)
            .spawn()?;
        let group = Pid::from_raw(child.id().cast_signed());
        drop(gate);
        watch.begin(group);
        // One that is dead already is missed below.
        let _ = gate_key.write_all(&[1]);
        let mut running = Running {
            group,
            watch,
            has_terminal: false,
            ended: None,
            is_stopped: false,
            children_changed,
            stderr,
        };
        running.has_terminal = running.hand_over_terminal();
        Ok(running)
    }

    /// Stops the whole group. False: it goes on, because it has the terminal, and the shell that would continue
    /// it does not know its group.
    pub(crate) async fn suspend(&mut self) -> bool {
        if self.has_terminal {
            self.say(NOT_SUSPENDED);
            return false;
        }
        // A group that is stopped may outlive the lease: it does nothing.
        self.watch.has_no_end();
        self.is_stopped = false;
        // Another `holdfast lock` in the group has a command of its own to stop, so it must hear of it.
        self.send(Signal::SIGTSTP);
        let _ = timeout(SUSPEND_PATIENCE, self.stopped()).await;
        self.send(Signal::SIGSTOP);
        true
    }

    async fn stopped(&mut self) -> io::Result<()> {
        while self.ended.is_none() && !self.is_stopped {
            self.ended = self.look()?;
            if self.ended.is_none() && !self.is_stopped {
                self.children_changed.recv().await;
            }
        }
        Ok(())
    }

    /// Unless this is told again in time, the companion asks the group to end `notice` before the span is over, and kills
    /// it then.
    pub(crate) fn may_run_for(&self, span: Duration, notice: Duration) {
        self.watch.ends_in(span, notice);
    }

    /// It was asked to end. Whatever becomes of us, the companion kills it after this span.
    pub(crate) fn must_end_within(&self, span: Duration) {
        self.watch.is_killed_in(span);
    }

    /// The same, at a time of `companion_link::now`.
    pub(crate) fn must_end_at(&self, nanos: u64) {
        self.watch.is_killed_at(nanos);
    }

    /// When we have ended, the companion kills the rest of the group, and ends the session after that.
    pub(crate) fn leave_to_companion(&mut self) {
        self.watch.outlives_us = true;
    }

    pub(crate) fn pid(&self) -> i32 {
        self.group.as_raw()
    }

    fn say(&self, words: &str) {
        self.stderr.write(output::message_line(words));
    }

    fn look(&mut self) -> io::Result<Option<Ended>> {
        match waitpid(self.group, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED))? {
            WaitStatus::Exited(_, code) => {
                Ok(Some(Ended::Exited(u8::try_from(code).unwrap_or(u8::MAX))))
            }
            WaitStatus::Signaled(_, signal, _) => {
                Ok(Some(Ended::BySignal(u8::try_from(signal as i32).unwrap_or(u8::MAX))))
            }
            // No process could continue it: the shell does not know its group.
            WaitStatus::Stopped(_, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU)
                if self.has_terminal =>
            {
                self.say(NOT_SUSPENDED);
                self.send(Signal::SIGCONT);
                Ok(None)
            }
            WaitStatus::Stopped(..) => {
                self.is_stopped = true;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn hand_over_terminal(&self) -> bool {
        let stdin = io::stdin();
        let in_foreground = stdin.is_terminal() && tcgetpgrp(&stdin) == Ok(getpgrp());
        if in_foreground && tcsetpgrp(&stdin, self.group).is_ok() {
            // It may have stopped because it read too early.
            self.send(Signal::SIGCONT);
            return true;
        }
        false
    }

    /// A background process that changes the terminal is stopped by SIGTTOU, unless it is blocked.
    fn take_back_terminal(&self) {
        let mut background_write = SigSet::empty();
        background_write.add(Signal::SIGTTOU);
        if background_write.thread_block().is_ok() {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
            let _ = background_write.thread_unblock();
        }
    }
}

impl ProcessGroup for Running {
    fn send(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
    }

    async fn ended(&mut self) -> io::Result<Ended> {
        loop {
            if self.ended.is_none() {
                self.ended = self.look()?;
            }
            if let Some(ended) = self.ended {
                return Ok(ended);
            }
            self.children_changed.recv().await;
        }
    }

    async fn is_gone(&self) {
        let group = Group::new(self.group.as_raw());
        while !group.is_dead() {
            // The kernel does not notify us about the end of processes that are not our children.
            tokio::time::sleep(GROUP_LOOK_INTERVAL).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_terminal {
            self.take_back_terminal();
        }
    }
}
