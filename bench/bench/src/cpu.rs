//! What processes cost, as the system counts it (Linux: `/proc`).

use std::fs;
use std::time::Duration;

use crate::Outcome;

/// Linux tells processor time in this unit, whatever the kernel was built with.
const TICKS_PER_SECOND: u64 = 100;
/// The fields behind the name of the program, which is in brackets and may contain anything.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;

/// The processes of a service that is measured; empty if they are not ours to see.
#[derive(Debug, Clone, Default)]
pub struct Servers(pub Vec<u32>);

/// Processor time up to a moment.
#[derive(Debug, Clone, Copy)]
pub struct CpuTimes {
    pub client: Duration,
    pub servers: Duration,
}

impl CpuTimes {
    /// This process, which is the load, and the servers. Where the system does not tell, nothing was used.
    pub fn now(servers: &Servers) -> CpuTimes {
        let of = |pid: &str| processor_time(pid).unwrap_or_default();
        CpuTimes {
            client: of("self"),
            servers: servers.0.iter().map(|pid| of(&pid.to_string())).sum(),
        }
    }
}

fn processor_time(pid: &str) -> Outcome<Duration> {
    processor_time_in(&fs::read_to_string(format!("/proc/{pid}/stat"))?)
}

fn processor_time_in(stat: &str) -> Outcome<Duration> {
    let (_, behind_name) = stat.rsplit_once(')').ok_or("no name in stat")?;
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let ticks = |field: usize| -> Outcome<u64> {
        Ok(fields.get(field).ok_or("stat is too short")?.parse()?)
    };
    let ticks = ticks(USER_TICKS)? + ticks(SYSTEM_TICKS)?;
    Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// What a process has in memory.
pub fn resident_bytes(pid: u32) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 =
        line.and_then(|line| line.trim().strip_suffix("kB")).ok_or("no VmRSS")?.trim().parse()?;
    Ok(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_move_the_fields() {
        let stat = "42 (a) (b c) S 1 42 42 0 -1 4194304 100 0 0 0 150 25 7 8 20 0 1 0 99 0 0";
        assert_eq!(processor_time_in(stat).unwrap(), Duration::from_millis(1_750));
    }
}
