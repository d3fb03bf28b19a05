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
            _ => two_scans_see_the_same_dead(|| self.scan()),
        }
    }

    /// Its processes, the dead among them. `None` where the kernel does not tell.
    fn scan(&self) -> Option<Vec<Stat>> {
        let mut members = Vec::new();
        for process in std::fs::read_dir("/proc").ok()? {
            let name = process.ok()?.file_name();
            if !name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
                continue;
            }
            let path = std::path::Path::new("/proc").join(name).join("stat");
            // One that ended since does not matter.
            let Ok(line) = std::fs::read_to_string(path) else { continue };
            members.extend(Stat::parse(&line).filter(|stat| stat.group == self.0));
        }
        Some(members)
    }
}

/// A scan of `/proc` is no snapshot: a process can fork into a number that the scan has passed, and end before the scan
/// comes to it. The scan sees neither of the two alive. It then sees a process that it did not see before, or misses one.
/// So two scans must see the same processes, all of them dead.
fn two_scans_see_the_same_dead(mut scan: impl FnMut() -> Option<Vec<Stat>>) -> bool {
    let Some(first) = scan() else { return false };
    !first.is_empty() && first.iter().all(Stat::is_dead) && scan().is_some_and(|it| it == first)
}

/// Of a line of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    process: i32,
    state: char,
    group: i32,
    threads: u32,
    /// Tells a process from an earlier one with the same number.
    started: u64,
}

impl Stat {
    /// The name in brackets may contain anything.
    fn parse(line: &str) -> Option<Stat> {
        let (before, after) = line.rsplit_once(") ")?;
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        Some(Stat {
            process: before.split_once(" (")?.0.parse().ok()?,
            state: fields.first()?.chars().next()?,
            group: fields.get(2)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
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
        assert_eq!(stat, Stat { process: 42, state: 'Z', group: 77, threads: 3, started: 6 });
        assert!(!stat.is_dead(), "two of its threads run");
        assert!(Stat { threads: 1, ..stat }.is_dead());
    }

    /// Process 9 forks process 5 after the scan has passed that number, and ends. Then 5 goes on alone.
    #[test]
    fn a_process_that_one_scan_of_proc_missed_keeps_its_group_alive() {
        let member = |process, state| Stat { process, state, group: 9, threads: 1, started: 1 };
        let is_dead = |scans: [Vec<Stat>; 2]| {
            let mut scans = scans.into_iter();
            two_scans_see_the_same_dead(|| scans.next())
        };
        let first = || vec![member(9, 'Z')];
        assert!(!is_dead([first(), vec![member(5, 'R'), member(9, 'Z')]]));
        assert!(!is_dead([first(), vec![member(5, 'Z'), member(9, 'Z')]]), "5 may have forked too");
        assert!(!is_dead([first(), vec![member(5, 'R')]]), "9 was reaped");
        assert!(!is_dead([first(), vec![Stat { started: 2, ..member(9, 'Z') }]]), "another 9");
        assert!(is_dead([first(), first()]));
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
