//! What each who looks at events costs, in nanoseconds of CPU time for one event.
//!
//! ```text
//! cargo run --profile optimised -p holdfast-server --example cost_of_observing [EVENTS]
//! ```

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is run by hand")]

use holdfast_server::cost::Observed;
use nix::time::{ClockId, clock_gettime};

const TURNS: usize = 100;
const EVENTS_PER_TURN: usize = 64;

/// Of this thread, so that others on the machine do not count.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    u64::try_from(now.tv_sec() * 1_000_000_000 + now.tv_nsec()).unwrap()
}

fn main() {
    let events: usize = std::env::args().nth(1).map_or(2_000_000, |text| text.parse().unwrap());
    let rounds = events.div_ceil(TURNS * EVENTS_PER_TURN);
    let directory = tempfile::tempdir().unwrap();
    for stage in ["record", "audit lines", "audit write", "watch encode", "watch decode"] {
        let mut observed = Observed::new(directory.path().join("audit.jsonl"));
        let (mut spent, mut done, mut bytes) = (0, 0, 0);
        for _ in 0..rounds {
            let mut turns = observed.happen(TURNS, EVENTS_PER_TURN);
            let before = cpu_ns();
            observed.record(&mut turns);
            let recorded = cpu_ns();
            let (from, to, events) = match stage {
                "record" => (before, recorded, TURNS * EVENTS_PER_TURN),
                "audit lines" => {
                    observed.format();
                    (recorded, cpu_ns(), TURNS * EVENTS_PER_TURN)
                }
                "audit write" => {
                    observed.format();
                    let formatted = cpu_ns();
                    observed.write();
                    (formatted, cpu_ns(), TURNS * EVENTS_PER_TURN)
                }
                "watch encode" => {
                    bytes += observed.encode();
                    (recorded, cpu_ns(), TURNS * EVENTS_PER_TURN)
                }
                _ => {
                    observed.encode();
                    let encoded = cpu_ns();
                    let events = observed.decode();
                    (encoded, cpu_ns(), events)
                }
            };
            if stage == "audit lines" {
                observed.write();
            }
            spent += to - from;
            done += events;
        }
        let bytes = if bytes > 0 { format!(", {} bytes", bytes / done) } else { String::new() };
        println!("{stage}: {} ns{bytes}", spent / done as u64);
    }
}
