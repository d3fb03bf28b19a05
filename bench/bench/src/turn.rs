//! What one turn of a workload has shown, and the median of several.

use serde::Serialize;

use crate::cpu::CpuTimes;
use crate::notes::Latency;

#[derive(Debug, Clone, Serialize)]
pub struct Turn {
    /// Operations, or what else the workload counts.
    pub per_second: f64,
    /// Of an acquire, or of what else the workload times.
    pub latency: Latency,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    pub cores: Cores,
}

/// How evenly many clients were served: the means of what each has waited.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Waits {
    pub mean_us: f64,
    /// How far the mean of any client is from that of all, in per cent; 0 is fair.
    pub farthest_percent: f64,
    /// Clients that were served not even once.
    pub starved: usize,
}

/// How many processor cores were busy.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cores {
    pub client: f64,
    /// 0 if the servers are not ours to see.
    pub servers: f64,
}

impl Cores {
    pub fn between(before: CpuTimes, after: CpuTimes, seconds: f64) -> Cores {
        Cores {
            client: after.client.saturating_sub(before.client).as_secs_f64() / seconds,
            servers: after.servers.saturating_sub(before.servers).as_secs_f64() / seconds,
        }
    }
}

impl Waits {
    /// Of the mean waits of the clients; `None` for one that was not served.
    pub fn of(means_us: &[Option<f64>]) -> Waits {
        let served: Vec<f64> = means_us.iter().flatten().copied().collect();
        let mean_us = served.iter().sum::<f64>() / served.len().max(1) as f64;
        let farthest = served.iter().map(|mean| (mean - mean_us).abs()).fold(0.0, f64::max);
        Waits {
            mean_us,
            farthest_percent: if mean_us > 0.0 { 100.0 * farthest / mean_us } else { 0.0 },
            starved: means_us.len() - served.len(),
        }
    }
}

/// Each figure is the median of its own; none if there was no turn.
pub fn median(turns: &[Turn]) -> Option<Turn> {
    let mut middle = turns.first()?.clone();
    let of = |figure: &dyn Fn(&Turn) -> f64| median_of(turns.iter().map(figure).collect());
    let latency_of = |latency: &dyn Fn(&Turn) -> Option<Latency>| {
        let part = |figure: fn(&Latency) -> f64| {
            median_of(turns.iter().filter_map(latency).map(|latency| figure(&latency)).collect())
        };
        Latency {
            count: part(|latency| latency.count as f64) as u64,
            p50_us: part(|latency| latency.p50_us),
            p99_us: part(|latency| latency.p99_us),
            p999_us: part(|latency| latency.p999_us),
            max_us: part(|latency| latency.max_us),
        }
    };
    middle.per_second = of(&|turn| turn.per_second);
    middle.latency = latency_of(&|turn| Some(turn.latency));
    middle.release = middle.release.map(|_| latency_of(&|turn| turn.release));
    middle.cores =
        Cores { client: of(&|turn| turn.cores.client), servers: of(&|turn| turn.cores.servers) };
    middle.waits = middle.waits.map(|_| {
        let part = |figure: fn(&Waits) -> f64| {
            median_of(turns.iter().filter_map(|turn| turn.waits.as_ref()).map(figure).collect())
        };
        Waits {
            mean_us: part(|waits| waits.mean_us),
            farthest_percent: part(|waits| waits.farthest_percent),
            starved: part(|waits| waits.starved as f64) as usize,
        }
    });
    Some(middle)
}

/// The lower one of the two in the middle.
fn median_of(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(per_second: f64, p50_us: f64) -> Turn {
        let latency = Latency { count: 1, p50_us, p99_us: 0.0, p999_us: 0.0, max_us: 0.0 };
        let cores = Cores { client: 1.0, servers: 1.0 };
        Turn { per_second, latency, release: None, waits: None, cores }
    }

    #[test]
    fn each_figure_is_the_median_of_its_own() {
        let middle = median(&[turn(10.0, 7.0), turn(30.0, 9.0), turn(20.0, 8.0)]).unwrap();
        assert_eq!((middle.per_second, middle.latency.p50_us), (20.0, 8.0));
        assert!(median(&[]).is_none());
    }

    #[test]
    fn one_client_that_waits_longer_is_seen_and_one_that_is_never_served_too() {
        let waits = Waits::of(&[Some(90.0), Some(90.0), Some(120.0), None]);
        assert_eq!(waits.mean_us, 100.0);
        assert_eq!(waits.farthest_percent, 20.0);
        assert_eq!(waits.starved, 1);
    }
}
