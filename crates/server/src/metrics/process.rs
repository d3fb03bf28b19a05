//! The process, as the system sees it: on Linux, from /proc. Nothing is shown of what cannot be read.

/// Under the names that every program uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    pub(super) resident_bytes: Option<u64>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) open_files: Option<u64>,
}

pub(super) fn look() -> Process {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).ok();
    let open_files = std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64);
    Process {
        resident_bytes: read("status").as_deref().and_then(resident_bytes),
        cpu_seconds: read("stat").as_deref().and_then(cpu_seconds),
        open_files,
    }
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// User and system time, in the hundredths of a second that Linux shows to programs.
fn cpu_seconds(stat: &str) -> Option<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    // The program's name may hold anything; what follows it does not.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_statistics_of_linux_are_read() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12 kB\n"), Some(12 * 1024));
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 90 0 0 0 150 50 0 0 20 0 1 0 9";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("nonsense"), None);
    }
}
