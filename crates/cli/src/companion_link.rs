//! Our side of the companion process ([`crate::companion`]), which sees to the end of the command and of the session when
//! we cannot: because we are dead, or stand still past the end of the lease. This process has one at most.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdfast_client::companion::{Companion, Message};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// While we are awake we ask the command to end before the companion does.
const HEAD_START: Duration = Duration::from_millis(100);

/// It is never dropped: the companion acts when this process ends, and has nothing to do if all went well.
static COMPANION: Mutex<Option<Companion>> = Mutex::new(None);

/// Nanoseconds on a clock that both processes read, and that runs on while the machine sleeps.
pub(crate) fn now() -> io::Result<u64> {
    let time = Duration::from(clock_gettime(CLOCK)?);
    Ok(nanos(time))
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(Message::NEVER)
}

/// Started by the first call.
pub(crate) fn companion() -> io::Result<Companion> {
    let mut known = COMPANION.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(companion) = &*known {
        return Ok(companion.clone());
    }
    let companion = Companion::start(this_program()?)?;
    Ok(known.insert(companion).clone())
}

/// What the companion has to know about the command.
pub(crate) struct GroupWatch {
    companion: Companion,
    /// Something of the group runs when we end: the companion is to end it.
    pub(crate) outlives_us: bool,
}

impl GroupWatch {
    pub(crate) fn new() -> io::Result<GroupWatch> {
        Ok(GroupWatch { companion: companion()?, outlives_us: false })
    }

    /// To be called before the command begins: if we die, the companion kills what it knows of.
    pub(crate) fn begin(&self, group: Pid) {
        self.companion.tell(&Message::Group(group.as_raw()));
    }

    /// The lease ends after `span`. Unless more is told by then, the group is asked to end `notice` before that, and
    /// killed when it is over.
    pub(crate) fn ends_in(&self, span: Duration, notice: Duration) {
        let Ok(now) = now() else { return };
        let kill = now.saturating_add(nanos(span));
        let term = kill.saturating_sub(nanos(notice.saturating_sub(HEAD_START.min(notice / 2))));
        self.companion.tell(&Message::EndGroupAt { term, kill });
    }

    /// The group was asked to end. What is left of it after `span` is killed.
    pub(crate) fn is_killed_in(&self, span: Duration) {
        let Ok(now) = now() else { return };
        self.is_killed_at(now.saturating_add(nanos(span)));
    }

    /// The same, at a time of [`now()`].
    pub(crate) fn is_killed_at(&self, kill: u64) {
        self.companion.tell(&Message::EndGroupAt { term: Message::NEVER, kill });
    }

    /// The companion has to look only at whether we live.
    pub(crate) fn has_no_end(&self) {
        let never = Message::NEVER;
        self.companion.tell(&Message::EndGroupAt { term: never, kill: never });
    }
}

impl Drop for GroupWatch {
    fn drop(&mut self) {
        if !self.outlives_us {
            self.has_no_end();
            self.companion.tell(&Message::NoGroup);
        }
    }
}

/// By way of /proc it is found even if the file was replaced while we run.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    let by_process = PathBuf::from("/proc/self/exe");
    if by_process.exists() { Ok(by_process) } else { std::env::current_exe() }
}
