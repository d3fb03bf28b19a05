//! On what it was measured: without it, figures mean nothing.

use std::fs;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    memory_gib: f64,
    kernel: String,
    /// Of Holdfast.
    version: &'static str,
}

impl Machine {
    pub(crate) fn this() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let value_of = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.map_or_else(String::new, |line| {
                line.trim_start_matches([' ', '\t', ':']).to_owned()
            })
        };
        let memory = value_of(&read("/proc/meminfo"), "MemTotal");
        let memory_kib: f64 =
            memory.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or_default();
        Machine {
            processor: value_of(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: (memory_kib / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}
