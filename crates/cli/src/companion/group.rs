//! A process group of which it must be known that it is dead.

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

#[derive(Debug)]
pub(crate) struct Group(i32);

impl Group {
    pub(crate) fn new(number: i32) -> Group {
        Group(number)
    }

    /// It may be gone already.
    pub(crate) fn send(&self, signal: Signal) {
        let _ = killpg(Pid::from_raw(self.0), signal);
    }

    /// Nothing of it runs any more. In a container without an init the dead may never be reaped: they still count for
    /// the kernel, and not here.
    pub(crate) fn is_dead(&self) -> bool {
        match killpg(Pid::from_raw(self.0), None) {
            Err(Errno::ESRCH) => true,
            _ => self.is_all_zombies().unwrap_or(false),
        }
    }

    /// `None` where the kernel does not tell.
    fn is_all_zombies(&self) -> Option<bool> {
        let processes = std::fs::read_dir("/proc").ok()?;
        let mut seen = false;
        for process in processes {
            let name = process.ok()?.file_name();
            if !name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
                continue;
            }
            let path = std::path::Path::new("/proc").join(name).join("stat");
            // One that ended since does not matter.
            let Ok(stat) = std::fs::read_to_string(path) else { continue };
            let Some(process) = Stat::parse(&stat) else { continue };
            if process.group == self.0 {
                seen = true;
                if !process.is_dead() {
                    return Some(false);
                }
            }
        }
        Some(seen)
    }
}

/// Of a line of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    group: i32,
    threads: u32,
}

impl Stat {
    /// The name in brackets may contain anything.
    fn parse(line: &str) -> Option<Stat> {
        let fields: Vec<&str> = line.rsplit_once(") ")?.1.split(' ').collect();
        Some(Stat {
            state: fields.first()?.chars().next()?,
            group: fields.get(2)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
        })
    }

    /// A process whose first thread has ended looks like a zombie while its other threads run.
    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_line_of_proc_is_read_whatever_the_process_is_called() {
        let line = "42 (a) S (b) Z 1 77 77 0 -1 4228356 98 0 0 0 0 0 0 0 20 0 3 0 6";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(stat, Stat { state: 'Z', group: 77, threads: 3 });
        assert!(!stat.is_dead(), "two of its threads run");
        assert!(Stat { threads: 1, ..stat }.is_dead());
    }

    #[test]
    fn a_group_is_dead_when_its_last_process_is_even_if_that_is_not_reaped() {
        let mut child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let group = Group::new(child.id().cast_signed());
        assert!(!group.is_dead());
        group.send(Signal::SIGKILL);
        while !group.is_dead() {
            std::thread::yield_now();
        }
        // It was not waited for until now.
        assert!(child.wait().is_ok());
        assert!(group.is_dead());
    }
}
