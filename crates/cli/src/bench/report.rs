//! What was measured, for people and for programs.

use holdfast_bench::Turn;
use serde::Serialize;

use super::BenchArgs;
use crate::output::Show;
use crate::text::table;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    clients: usize,
    connections: usize,
    seconds: f64,
    pub(super) workloads: Vec<Figures>,
}

#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) workload: &'static str,
    /// What `per_second` is about.
    pub(super) counts: &'static str,
    pub(super) median: Turn,
    pub(super) repeats: Vec<Turn>,
}

impl Report {
    pub(super) fn of(args: &BenchArgs) -> Report {
        Report {
            clients: args.clients.get(),
            connections: args.connections.get(),
            seconds: args.seconds.as_secs_f64(),
            workloads: Vec::new(),
        }
    }
}

impl Show for Report {
    fn to_table(&self) -> String {
        let rows: Vec<Vec<String>> = self.workloads.iter().map(Figures::row).collect();
        let headers = [
            "WORKLOAD",
            "PER SECOND",
            "P50 US",
            "P99 US",
            "P99.9 US",
            "MAX US",
            "CORES CLIENT",
            "CORES SERVERS",
            "WAITS",
        ];
        table(&headers, &rows)
    }
}

impl Figures {
    fn row(&self) -> Vec<String> {
        let Turn { per_second, latency, waits, cores, .. } = &self.median;
        let waits = waits.map_or(String::new(), |waits| {
            let starved = match waits.starved {
                0 => String::new(),
                starved => format!(", {starved} starved"),
            };
            format!("mean {:.0} us, within {:.1} %{starved}", waits.mean_us, waits.farthest_percent)
        });
        vec![
            self.workload.to_owned(),
            format!("{per_second:.0} {}", self.counts),
            format!("{:.0}", latency.p50_us),
            format!("{:.0}", latency.p99_us),
            format!("{:.0}", latency.p999_us),
            format!("{:.0}", latency.max_us),
            format!("{:.2}", cores.client),
            // Those of another machine are not seen.
            if cores.servers > 0.0 { format!("{:.2}", cores.servers) } else { "-".to_owned() },
            waits,
        ]
    }
}
